"""The page for people: an overview that the node renders, and the program that shows the rest."""
