"""Names of packages: what is imported under another name than it is installed under, and what is easily mistyped."""

from __future__ import annotations

__all__ = ["DISTRIBUTIONS", "FORMER_NAMES", "NAMESPACES", "OFTEN_USED", "REAL_NAMES"]

DISTRIBUTIONS = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "Cryptodome": "pycryptodomex",
    "MySQLdb": "mysqlclient",
    "OpenGL": "PyOpenGL",
    "OpenSSL": "pyOpenSSL",
    "PIL": "pillow",
    "Xlib": "python-xlib",
    "antlr4": "antlr4-python3-runtime",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cairo": "pycairo",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "decouple": "python-decouple",
    "discord": "discord.py",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "ffmpeg": "ffmpeg-python",
    "fitz": "PyMuPDF",
    "gi": "PyGObject",
    "git": "GitPython",
    "github": "PyGithub",
    "google.protobuf": "protobuf",
    "googleapiclient": "google-api-python-client",
    "graphql": "graphql-core",
    "grpc": "grpcio",
    "hydra": "hydra-core",
    "jose": "python-jose",
    "jwt": "PyJWT",
    "kafka": "kafka-python",
    "ldap": "python-ldap",
    "magic": "python-magic",
    "markdown_it": "markdown-it-py",
    "memcache": "python-memcached",
    "mpl_toolkits": "matplotlib",
    "mysql": "mysql-connector-python",
    "nacl": "PyNaCl",
    "nmap": "python-nmap",
    "odf": "odfpy",
    "osgeo": "GDAL",
    "past": "future",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "pylab": "matplotlib",
    "pythoncom": "pywin32",
    "pywt": "PyWavelets",
    "rest_framework": "djangorestframework",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "socks": "PySocks",
    "speech_recognition": "SpeechRecognition",
    "stdnum": "python-stdnum",
    "telegram": "python-telegram-bot",
    "tlz": "toolz",
    "umap": "umap-learn",
    "usb": "pyusb",
    "web": "web.py",
    "websocket": "websocket-client",
    "win32api": "pywin32",
    "wx": "wxPython",
    "xdg": "pyxdg",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
"""The distributions that bring what is imported under another name."""

FORMER_NAMES = {
    "ConfigParser": "configparser",
    "HTMLParser": "html.parser",
    "Queue": "queue",
    "SocketServer": "socketserver",
    "StringIO": "io",
    "Tkinter": "tkinter",
    "cPickle": "pickle",
    "tk": "tkinter",
    "urllib2": "urllib.request",
    "urlparse": "urllib.parse",
}
"""Modules of the standard library by what they were once called, or are by some."""

NAMESPACES = frozenset({"azure", "backports", "google", "jaraco", "keyrings", "oslo", "ruamel", "sphinxcontrib", "zope"})
"""Packages that are spread over distributions, each named with a dot, as ``zope.interface`` is."""

_OFTEN_USED = """
    aiohttp altair beautifulsoup4 bokeh catboost celery click cryptography cython dask django fastapi flask folium gensim
    geopandas gymnasium httpx humanize hypothesis imageio ipython jinja2 joblib jsonschema jupyter keras lightgbm loguru
    lxml matplotlib more-itertools networkx nltk notebook numba numpy openai openpyxl optuna pandas paramiko pillow
    playwright plotly polars psutil pyarrow pydantic pygame pymongo pymupdf pyqt5 pytest pyyaml redis regex requests rich
    scikit-image scikit-learn scipy scrapy seaborn selenium setuptools shapely sortedcontainers spacy sqlalchemy statsmodels
    streamlit sympy tabulate tensorflow toolz torch torchaudio torchvision tornado tqdm transformers typer typing-extensions
    websockets xgboost
"""

OFTEN_USED = frozenset(_OFTEN_USED.split())
"""Distributions that a mistyped name is likely to have meant."""

_REAL_NAMES = """
    attrs cryptg datetime dateutils emails enumb fastai httpr jsons locales match ntplib openapi panda paste pickley polib
    pyaml pygam pyjwt pymupdfb pyyml scapy serialx shutils sockets times torchx weave
"""

REAL_NAMES = frozenset(_REAL_NAMES.split())
"""Distributions among the 15,000 most downloaded that look like slips of the keyboard."""
