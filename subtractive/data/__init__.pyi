from .tables import penguins as penguins
