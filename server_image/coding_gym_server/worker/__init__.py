"""Worker process, which confines itself and then runs user code."""
