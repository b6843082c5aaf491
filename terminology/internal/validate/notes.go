package validate

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// note is an issue found by validation.
type note struct {
	outcome.Issue
	part string // of the coding; Coding.place says where that is
	told bool   // also part of the message
}

// onlyTold is the severity of what the message says, but no issue: other servers have none either.
const onlyTold = ""

// notes are the issues of all codings of one validation.
type notes struct {
	list []note
	size int // of their texts, in bytes
}

// maxNoted bounds the size of all notes, in bytes: a request's code system may have a hundred thousand displays to
// list.
const maxNoted = 4 << 20

// note adds an issue about part of a coding.
func (n *notes) note(severity, code, txCode, id string, c *parameters.Coding, part string, told bool, text string) {
	n.place(c, note{part: part, told: told, Issue: outcome.Issue{Severity: severity, Code: code, TxCode: txCode, MessageID: id, Text: text}})
}

// place adds a note, located at its part of a coding.
func (n *notes) place(c *parameters.Coding, one note) {
	if c != nil {
		one.Expression = []string{c.Place(one.part)}
	}
	n.list = append(n.list, one)
	n.size += len(one.Text)
}

func (n *notes) failed() bool { return slices.ContainsFunc(n.list, note.isError) }

func (n note) isError() bool { return n.Severity == "error" }
