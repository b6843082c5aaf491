package rawjson

// Kind is a kind of JSON value.
type Kind byte

// The kinds of values. None means that no value is next: the text ends, or is wrong here.
const (
	None Kind = iota
	Object
	Array
	String
	Number
	Bool
	Null
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"none", "object", "array", "string", "number", "boolean", "null"}[k]
}

// kinds are the kinds of values by their first byte.
var kinds = [256]Kind{
	'{': Object, '[': Array, '"': String, 't': Bool, 'f': Bool, 'n': Null, '-': Number,
	'0': Number, '1': Number, '2': Number, '3': Number, '4': Number,
	'5': Number, '6': Number, '7': Number, '8': Number, '9': Number,
}
