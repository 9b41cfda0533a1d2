"""Pages for a browser: the routes of their files, and the files that all of them share."""
