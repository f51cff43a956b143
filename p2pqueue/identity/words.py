"""Which words does a pairing code consist of?

Two lists of 256, written for this purpose: short, common, and told apart by their first four letters and when said
aloud. No word stands in both, so that two words in the wrong order are still understood. Pure.
"""

from __future__ import annotations

from typing import Final

_FIRST = """
    acorn alder almond amber antler apple apricot arbor aspen aster atoll aurora autumn avocado badger bamboo banyan barley basil bayou
    beaver beech beetle berry birch bison blossom bluff boulder bramble breeze brook buffalo bumble burrow cactus camel canary canyon
    caribou carrot cascade cavern cedar cheetah cherry cicada clover cobra coconut comet condor coral cougar coyote crane creek cricket
    crocus cuckoo current cypress dahlia daisy delta desert dingo dolphin donkey dragon drizzle dune eagle eclipse emerald estuary
    falcon feather fennel fern ferret fiddle fiord flint flower fossil galaxy gazelle gecko geyser ginger giraffe glacier glade gopher
    gorilla granite grape grove guava gull hamster hawk hazel hedge hemlock heron hickory horizon hornet hyena ibex iceberg iguana
    indigo iris island ivory jackal jaguar jasmine jungle juniper kelp kestrel kiwi koala lagoon lantana lark laurel lava lemon lemur
    leopard lichen lilac lily linden lion lizard llama lobster locust lotus lupin lynx macaw magpie mallow mammoth mango maple marlin
    marsh marten meadow melon meteor mimosa mink monsoon moose moss mustang narwhal nebula nettle newt nutmeg oasis ocean ocelot octopus
    olive onyx opal orbit orchid osprey ostrich otter oyster panda panther papaya parsley peacock pebble pelican penguin peony pepper
    petal pigeon pine planet plum polar pollen pond poppy possum puffin python quail quartz quince rabbit ranger raven reef rhino ripple
    river robin rocket salmon sandal seal shadow shark sierra silver sloth snail snow spider spruce squid stork summit talon tapir tiger
    toucan trout tulip tundra turtle valley violet viper walnut walrus weasel whale willow winter wolf wombat yarrow yucca zebra zephyr
    zinnia
"""
_SECOND = """
    abacus album alcove almanac anchor anvil apron arcade archway atlas attic axle baker balcony ballad banjo banner barrel basket
    beacon bellows bicycle biscuit blanket blender bonnet bottle brass bridge bronze brush bucket bugle button cabin cable camera candle
    canoe canvas caravan carpet castle ceiling cello chain chalk chapel chimney chisel cinema circus citadel clock cobalt coffee collar
    compass concert copper cotton cradle crayon crimson crystal curtain cushion cymbal denim diamond diary doctor dome drawer drum echo
    elbow engine faucet fence fiction filter flannel flute folder frame furnace gadget garage garden garland garnet gateway gazebo
    goblet gondola gravel guitar gutter hammer harness harp helmet hinge hoop hotel humor icicle igloo indoor jacket jigsaw journal
    jumper kayak kernel keyhole kitchen knot label lacquer ladder lantern lattice ledger lens lever library lumber lunch machine magnet
    mailbox mantle marble market mason medal melody mercury mirror mitten mohair mosaic motor mural museum napkin needle novel nylon
    oboe office opera organ oven package paddle padlock pajama palace panel paper parade parcel parlor pencil pendant piano picnic
    pigment pitcher plaster poem porch pottery powder printer pulley puppet puzzle pyramid quarry quilt radar radio railway rattle
    ribbon robot rudder ruler sailor satchel satin saucer scarf school sedan shelf shingle shovel signal silk sketch skillet slipper
    soap sofa spindle spoon stadium stapler statue stencil stirrup stool studio sundial sweater syrup tandem target teapot tempo theater
    thimble timber toaster token tower tractor trellis trophy trumpet tunnel turbine tuxedo twine uniform vase vault velvet veranda
    vessel village violin wagon waltz wicker window wrench yarn yoga zipper zither
"""

FIRST: Final = tuple(_FIRST.split())
SECOND: Final = tuple(_SECOND.split())
