package terminology

import "slices"

// note is an issue that validation finds.
type note struct {
	Issue
	part string // of the coding; placed tells where that is
	told bool   // in the message as well
}

// notes are the issues found for all codings of a validation.
type notes struct {
	list []note
	size int // of their texts, in bytes
}

// maxNoted bounds the texts of all notes, in bytes: a request may bring a code system with a hundred thousand displays
// to list.
const maxNoted = 4 << 20

// note adds an issue about a part of a coding.
func (n *notes) note(severity, code, txCode, id string, c *Coding, part string, told bool, text string) {
	n.place(c, note{part: part, told: told, Issue: Issue{Severity: severity, Code: code, TxCode: txCode, MessageID: id, Text: text}})
}

// place adds a note, with the place of its part of a coding.
func (n *notes) place(c *Coding, one note) {
	if c != nil {
		one.Expression = []string{c.place(one.part)}
	}
	n.add(one)
}

// add adds a note.
func (n *notes) add(one note) {
	n.list = append(n.list, one)
	n.size += len(one.Text)
}

// failed reports whether there is an error among the notes.
func (n *notes) failed() bool {
	return slices.ContainsFunc(n.list, func(one note) bool { return one.Severity == "error" })
}

// absent is what is not here of what codings need.
type absent struct {
	versions  []string  // canonicals of versions of code systems
	systems   []string  // urls of code systems of which nothing is here
	unchecked []string  // canonicals of code systems of which the value set lists a code
	valueSets []Missing // that are imported
}

// addTo adds a name to a list, once.
func addTo(list *[]string, name string) {
	if !slices.Contains(*list, name) {
		*list = append(*list, name)
	}
}
