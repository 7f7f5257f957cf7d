"""How much and how often: elements, counts and iterations of every slot."""
