"""What the methods based on scatter matrices share: components that separate what should lie apart."""
