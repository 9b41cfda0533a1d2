// Code to begin with.

export const EXAMPLES = {
  python: [
    ["Values and output", 'import sys\n\nprint("to stdout")\nprint("to stderr", file=sys.stderr)\nsum(range(10))\n'],
    ["A plot", "import matplotlib.pyplot as plt\n\nplt.plot([n * n for n in range(20)])\nplt.title(\"Squares\")\nplt.show()\n"],
    [
      "A window",
      'import tkinter as tk\n\nroot = tk.Tk()\nroot.geometry("320x160+40+40")\nlabel = tk.Label(root, text="Hello", font=("DejaVu Sans", 18))\nlabel.pack(pady=20)\ntk.Button(root, text="Click me", command=lambda: (label.config(text="Clicked"), print("clicked"))).pack()\nroot.mainloop()\n',
    ],
  ],
  bash: [["Files and processes", 'echo "Hello from $BASH_VERSION"\nls -la\nps\n']],
  javascript: [["Values", "const squares = [...Array(5).keys()].map((n) => n * n);\nconsole.log(squares);\nsquares.length\n"]],
  typescript: [["Values", "const squares: number[] = [0, 1, 2, 3].map((n) => n * n);\nconsole.log(squares);\nsquares.length\n"]],
};
