"""How much and how often: elements, counts and turns of every slot."""
