"""What the methods by scatter matrices share: components that part what is to be apart."""
