"""The public names and where they are defined; `__init__.py` imports each at its first use."""

from remuda.population.directors.director import Birth as Birth
from remuda.population.directors.director import Command as Command
from remuda.population.directors.director import Director as Director
from remuda.population.directors.director import Freeze as Freeze
from remuda.population.directors.director import Retire as Retire
from remuda.population.directors.director import Vacate as Vacate
from remuda.population.ledger.ledger import Ledger as Ledger
from remuda.population.ledger.records import Member as Member
from remuda.population.ledger.records import PolicyRef as PolicyRef
from remuda.population.ledger.records import Population as Population
from remuda.population.matchmaking.matchmaker import Matchmaker as Matchmaker
from remuda.population.matchmaking.seating import Seating as Seating
