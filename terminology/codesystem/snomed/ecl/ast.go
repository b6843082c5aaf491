package ecl

import "math"

// Expression is a parsed expression constraint. It is immutable.
type Expression struct {
	root      node
	canonical string
}

// String returns the canonical text: the expression in brief syntax without terms, comments and default cardinalities.
func (x *Expression) String() string { return x.canonical }

// node is an expression constraint: one of the following types.
type node any

// concept is the SCTID of a concept reference.
type concept uint64

// cacheable is an expression with a result that is worth caching. Its canonical text is canonical[from:to].
type cacheable struct {
	node     node
	from, to int
}

// anyConcept is the wildcard.
type anyConcept struct{}

// alternateID is a concept reference by an identifier of another scheme.
type alternateID struct{ scheme, code string }

// hierarchy applies a constraint operator, in brief syntax, to the results of an operand.
type hierarchy struct {
	operator string
	operand  node
}

// memberOf selects members of reference sets (^) or, if containing is set, reference sets by their members (^R). Each list of
// criteria must hold for the same row.
type memberOf struct {
	containing bool
	fields     []string // selected columns; empty: referencedComponentId; "*": all
	operand    node
	filters    [][]criterion
}

// filtered applies a concept filter (kind C) or a description filter (kind D).
type filtered struct {
	operand  node
	kind     byte
	criteria []criterion
}

// history adds inactive concepts by historical associations. subset is nil if a profile (MIN, MOD or MAX) is used.
type history struct {
	operand node
	profile string
	subset  node
}

// compound combines expressions with AND, OR or MINUS.
type compound struct {
	operator string
	operands []node
}

// dotted selects the values of an attribute.
type dotted struct{ operand, attribute node }

// refined selects the concepts of an operand that match a refinement.
type refined struct {
	operand    node
	refinement refinement
}

// refinement is a condition for the attributes of a concept: *attribute, *group or *refinements.
type refinement any

// refinements combines refinements with AND or OR.
type refinements struct {
	operator string
	parts    []refinement
}

// group is an attribute group.
type group struct {
	cardinality cardinality
	attributes  refinement // without groups
}

// attribute compares values of an attribute. Either value or one of the concrete values is set.
type attribute struct {
	cardinality cardinality
	reverse     bool
	name        node
	operator    string
	value       node
	concrete    concrete
}

// concrete is a concrete value. Numbers and booleans are in the notation of the release files: #5, true.
type concrete struct {
	literal string
	texts   []string // alternatives
}

// cardinality is the permitted number of matches.
type cardinality struct{ min, max uint32 }

// many is the maximum cardinality *.
const many = math.MaxUint32

func (c cardinality) allows(n uint32) bool { return c.min <= n && n <= c.max }

// criterion is a condition in a filter. Only the fields that belong to its field name are set.
type criterion struct {
	field    string // keyword or name of a column
	operator string
	values   node         // typeId, moduleId, definitionStatusId, column
	terms    []searchTerm // term, column
	dialects []dialectCriterion
	words    []string // language, effectiveTime, id, active (1, 0 or *), column (#5, true)
}

// searchTerm is a search text, with escapes as in the expression. kind is match, wild or exact.
type searchTerm struct{ kind, text string }

// dialectCriterion is an alternative for language reference sets, and for acceptabilities unless empty.
type dialectCriterion struct {
	refsets       node
	acceptability []uint64
}
