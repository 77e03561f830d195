"""Where model weights come from, and how their graphs are prepared."""
