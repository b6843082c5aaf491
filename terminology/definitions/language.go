package definitions

import "cmp"

// Language says which languages displays should be in.
type Language struct {
	// Display is the parameter displayLanguage: a list of languages, possibly with weights.
	Display string

	// Accept is the header Accept-Language. It counts after the value set's own parameter.
	Accept string
}

// Preferred returns the languages for the displays of a value set: the parameter's, the value set's own parameter's,
// the header's or the value set's, in this order.
func (l *Language) Preferred(vs *ValueSet) string {
	return cmp.Or(l.Display, vs.standard("displayLanguage"), l.Accept, vs.Language)
}
