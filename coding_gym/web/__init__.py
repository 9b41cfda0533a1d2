"""Pages in the browser, served on this machine."""
