"""Images, videos and rich results."""
