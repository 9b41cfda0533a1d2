"""Programs that draw, and the pictures that a sandbox takes of them."""
