"""Programs that draw, and the screenshots that a sandbox takes of them."""
