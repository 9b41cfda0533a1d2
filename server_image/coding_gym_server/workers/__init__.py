"""The processes of a sandbox: zygote, session roots and workers, and the server's end of each."""
