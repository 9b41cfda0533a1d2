"""The server's handles on other processes: starting, communicating with and ending them."""
