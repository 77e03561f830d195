"""Document AI that stays up and stays right under load."""

__version__ = "0.1.0"
