from .graph import Partition as Partition
from .graph import Region as Region
from .graph import RegionGraph as RegionGraph
from .purification import purified as purified
from .trees import quad_graph as quad_graph
