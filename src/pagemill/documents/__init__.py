"""What documents are, and how they look in each format."""
