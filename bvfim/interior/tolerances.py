"""Every constant of the interior-point method, each with its reason.

Tolerances on f are relative to the variation of f (``spread`` over the initial samples, ``scale`` near the point), and
tolerances on F to the size of F, so that F, c F, f + c and c f have the same iterates. They were chosen on the 21 test
problems; ``benchmarks/adaptive.py`` measures the contribution of each ingredient.
"""

from __future__ import annotations

# -- the first mu2 and tau --

HIGH_SHARE = 0.9
"""The range of f ends at this quantile of its samples, so that one outlier does not set it."""
NO_RANGE, NOTHING = 1e-14, 1e-20
"""A range of f below this share of |f|, or below this absolute value, is rounding error."""
FIRST_DESCENT = 1e-3
"""The accuracy of the very first z, as a share of the range of f: mu2 will be about that range."""
BOTTOMLESS = 1e8
"""f is unbounded below if a descent falls below its lowest sample by this many times the range, or the size, of f."""
LOOSE_GAP, LOOSE_RANGE = 1.5, 2.0
"""The first mu2 is this multiple of the gap, or of the range of f: large enough for a connected feasible set."""
WEAK_PULL = 0.02
"""The first tau: the barrier's gradient is this share of F's gradient, where that is weakest relative to f's."""
PULL_POINTS = 3
"""The number of points at which the gradients of F and f are compared: one of them may be stationary."""
SMALLEST = 1e-200
"""A lower bound on the ratio of gradients: a ratio of zero would remove the barrier."""
BOTTOM = 1e-6
"""A start with a gap below this share of the range of f is a lower-level solution already."""

# -- stepping through a stage --

NUDGE = 1e-3
"""The perturbation of the first point, relative to its size: it leaves a saddle, where the gradient vanishes."""
Z_SHARE, Z_FINEST = 1e-3, 1e-8
"""The accuracy of z, as a share of mu2: an error e mu2 in f(x, z) causes one of about sqrt(e) in the gradient of B."""
FIRST_Z = 1e-2
"""How much more accurate the first z of a stage is: later ones would reduce its error, which looks like progress."""
NEAR_SHARE = 0.2
"""The local variation of f is the height of this quantile of the nearby scouts above z."""
COMING_NEAR = 5
"""The scale of f may decrease for this many stages; at the optimum itself f may not vary at all."""
PRECISION = 0.3
"""The gradient of B relative to that of F at a stage's end: a slack of mu2 leaves an error of about sqrt(mu2) in y."""
BLUR = 50
"""The multiplier is uncertain by this many rounding errors of f, divided by mu2; the gradient need not be smaller."""
LOOSEST = 0.3
"""No stage ends with a gradient larger than this share of that of F."""
FINE = 0.3
"""The gradient need not be below this multiple of tol."""
FAINT = 1e-4
"""A gradient of F, or an F, below this share of its size counts as that large."""
LITTLE = 0.05
"""A stage ends when B can decrease by less than this share of tau."""
HIDDEN, VISIBLE = 2, 0.1
"""The curvature of B is about |grad F|^2 / tau: a gradient below the square root of this many rounding errors over the
slack is not visible in its values, and one above this share of F's gradient always is."""
OUTSIDE_DESCENT, NEAR_ENOUGH = 0.1, 0.5
"""An infeasible y descends f to the first share of mu2; it stays there if f is then within the second share above z."""
RAISE = 1.25
"""Otherwise mu2 becomes this multiple of the gap."""
SHORTER = 0.4
"""In a later trial, z starts this far towards the end point of the previous trial, as steps are shortened."""
SAME_VALUE = 8
"""Values of f that differ by no more than this many rounding errors are the same."""
OLDER = 2
"""The number of older minima of f that are kept."""
RIVAL, APART = 10, 1e-2
"""An older point is minimised again at the end of a stage if f there is within this many mu2 of its lowest value, and
if it is this far from z, relative to its size: where two minima are about equal, an old point hides the lower one."""
FORESIGHT = 10
"""z is extrapolated along its last step, up to this multiple of the last step of x."""

# -- tightening --

STILL_FALLING = 0.5
"""mu2 and tau stay for another stage where the last one ended for want of steps, and B fell by this share of tau."""

LEAST_SLACK = 1e-3
"""A smaller slack is replaced by this share of mu2, or tau would blow up."""
INSIDE = 0.1
"""The next mu2 leaves the point this share of its slack."""
MULTIPLIER_SHARE, FASTEST_GROWTH = 0.5, 4
"""tau follows the multiplier found, at this share of it, and grows at most by this factor per stage."""
STALLED = 3
"""The number of consecutive stages for which a gap may hold mu2 up before y jumps."""
HARDLY = 0.8
"""A gap that stays above this share of its last value has stalled."""
WORTH_A_JUMP = 1e-6
"""A gap below this share of the tolerance of f is closed: there is nowhere to jump to."""
BASIN = 0.1
"""A jump descends to this share of the target gap."""

# -- judging --

ROUNDINGS = 100
"""A gap can be distinguished from this many rounding errors of f."""
TELLS = 1e-2
"""Rounding below this share of the tolerance is ignored."""
SETTLED_SHARE = 1e-3
"""If the gradient vanishes, the estimates of F should agree instead: a closed gap must be smaller by this factor."""
CLOSED_GAP, CLOSED_MU2 = 1e-5, 1e-4
"""The gap and mu2 at which a start ends without a vanishing gradient, as shares of the tolerance of f."""
CLOSED_ROUNDING = 3
"""The same, in rounding errors."""
FLOOR = 1e-13
"""mu2 can't fall below this share of the scale of f."""
FAR = 1e7
"""A point this many times as large as the initial point has diverged."""
MEET, MEET_COARSE = 0.05, 0.15
"""How closely the estimates of F must agree, as a share of tol times the size of F, and where tol comes near to
rounding; the stated tolerance is tol."""
NEAR_ROUNDING = 1e4
"""A tol is near to rounding below this many square roots of the dtype's precision."""
MEET_AHEAD = 0.05
"""The same for an estimate that the path gives, which is of second order in 1 / lambda."""
WIDE, WIDE_FAINT = 10, 1e-2
"""An estimate that F is locally above may be this many tolerances of |F| below it, where |F| counts as at least this
share of its size."""
POLISHED = 1e-9
"""The share of its gap that y is polished to: F then errs by the root of it, as a share of what it changes by, which is
small against the second order."""
GAP_LEFT, LEAST_GAP = 0.1, 1e-3
"""The share of the gap that polishing may leave; the gap counts as at least this share of the tolerance of f."""
PROBES = 4
"""The number of descents that search for a lower f before a start counts as solved."""
PROBE_SAMPLES = 4
"""The number of samples is this multiple of the scouts; the best sample starts one of the descents."""
PROBE_FINE = 1e-2
"""The accuracy of these descents, as a share of the tolerance of f."""
PROBE_FINER, DOWNHILL = 1e-6, 0.5
"""A descent ends above the lowest, and the slope towards z promises this share of what lies between: it came to rest
too early, and goes on to this accuracy. From there a slope is told from a minimum by its gradient."""
GRID = (1024, 32)
"""In one and in two dimensions, the number of values of f along each axis of the grid that the hollows come from."""

AXES, ALONG, ROOM = 200, 32, 10_000_000
"""In more dimensions, the number of axes through z that are looked along, the number of values on each, and the most
numbers that the points may have together."""

LEVEL = 0.1
"""Minima of f whose values differ by less than this share of its tolerance are equally low."""

# -- never worse than what was seen --

LATE = 100
"""A point counts as seen once mu2 is within this many tolerances of f: before, z may be in the wrong basin."""
REOPEN = 10
"""A start that goes on from its best point has a slack of this many tolerances of f: enough to move, not to leave."""
SEEN = 10
"""What was seen on the way is worth going back to if F is lower there by this many tolerances: y may use the slack."""
BEST = 1e-6
"""The accuracy to which f is minimised again there, as a share of its tolerance."""

# -- constraints --

MULTIPLIER_ROUNDS = 3
"""How often the multipliers of the lower level move between two stages."""
SETTLING, ROUGH_Z = 3, 1e-5
"""How often they move so at a new point, and the accuracy of z meanwhile, as a share of the range of f."""
TIGHT_GAIN = 0.03
"""A tight first mu2 lets F gain this share of what it varies by over the pool, and is at most this share of the range
of f."""
MULTIPLIERS_TOLD, MULTIPLIERS_REST, CONTRACTS, HEAVIER_LOWER = 10, 1e-8, 0.5, 3
"""They rest where they change by less than this over their weight, relative to the size of w. Where a change is not
below the second share of the one before, at the same x, their weight is multiplied by the third number."""
FASTEST_RESPONSE = 1.0
"""Multipliers respond to x by at most this multiple of the curvature of psi, and of their weight: where a solution
ceases to exist they grow without bound, and a first order that outweighs the constraint holds for no step at all."""
HALVED, HEAVIER_UPPER = 0.5, 4
"""A violation that does not fall to this share in a stage gets this many times the weight in F."""
HOLDS, HOLDS_FINE, HOLDS_ROUNDINGS = 2e-6, 1e-7, 300
"""Constraints hold within this distance, relative to the size of w, or within so many rounding errors; the second is
what is aimed at."""
DEPENDENT = 1e-10
"""Constraints that bind depend on one another where what is left of one is below this share."""
SHORT_STEP = 1e-4
"""A step of x that is shorter, relative to the size of w, tells little of how multipliers change with x."""
HARD, HOPELESS = 5, 10
"""After so many stages without halving a violation, it is seen whether it can be lowered at all; after the second
number, f is what does not let it."""
TERMS_LEFT = 1e-4
"""The terms of constraints vanish at a solution of the lower level, up to this share of the range of f."""
NEARLY_FEASIBLE = 1e-3
"""Where constraints are violated by more than this, relative to the size of w, a weight is not to blame: x is."""
