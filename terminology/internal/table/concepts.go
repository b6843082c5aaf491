package table

import (
	"bytes"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// noParent stands for no concept in concepts.nestedIn.
const noParent = ^uint32(0)

// concepts holds, by number, what each concept is called and where it stands in the definition.
type concepts struct {
	caseSensitive bool

	texts    codesystem.Texts
	code     []codesystem.TextRef
	display  []codesystem.TextRef // 0 if a concept has none
	meaning  []codesystem.TextRef // concept.definition, 0 if a concept has none; nil if none has one
	flags    []codesystem.Flags
	index    codeIndex
	nestedIn []uint32 // the concept that each is nested in, or noParent; nil if none is nested
}

// len returns the number of concepts.
func (c *concepts) len() int { return len(c.code) }

func (c *concepts) codeOf(concept uint32) []byte { return c.texts.At(c.code[concept]) }

// displayOf returns a concept's display, or nil.
func (c *concepts) displayOf(concept uint32) []byte { return c.texts.At(c.display[concept]) }

// definitionOf returns a concept's definition, or nil.
func (c *concepts) definitionOf(concept uint32) []byte {
	if c.meaning == nil {
		return nil
	}
	return c.texts.At(c.meaning[concept])
}

// locate finds a concept by its code: exactly, or in any case if the code system ignores it.
func (c *concepts) locate(code []byte) (concept uint32, ok bool) {
	concept, ok = c.exact(code)
	if ok || c.caseSensitive {
		return concept, ok
	}
	return c.index.find(code, func(other uint32) bool { return codesystem.EqualFold(c.codeOf(other), code) })
}

// exact finds a concept by its exact code.
func (c *concepts) exact(code []byte) (uint32, bool) {
	return c.index.find(code, func(other uint32) bool { return bytes.Equal(c.codeOf(other), code) })
}
