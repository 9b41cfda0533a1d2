"""Files of sessions."""
