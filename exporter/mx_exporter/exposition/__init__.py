"""State to pages: a neutral model of samples, and the formats it is printed in."""
