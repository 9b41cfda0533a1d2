"""Messages between the processes of a sandbox, and the channels that carry them."""
