package codesystem

import "bytes"

// noParent stands for no concept in concepts.nestedIn.
const noParent = ^uint32(0)

// concepts holds, by number, what each concept is called and where it stands in the definition.
type concepts struct {
	caseSensitive bool

	texts    Texts
	code     []TextRef
	display  []TextRef // 0 if a concept has none
	meaning  []TextRef // concept.definition, 0 if a concept has none; nil if none has one
	flags    []Flags
	index    codeIndex
	nestedIn []uint32 // the concept that each is nested in, or noParent; nil if none is nested
}

// Len returns the number of concepts.
func (c *concepts) Len() int { return len(c.code) }

// Concept returns a concept's code, display and flags.
func (c *concepts) Concept(concept uint32) (code, display []byte, flags Flags) {
	return c.Code(concept), c.Display(concept), c.flags[concept]
}

// Code returns a concept's code.
func (c *concepts) Code(concept uint32) []byte { return c.texts.At(c.code[concept]) }

// Display returns a concept's display, or nil.
func (c *concepts) Display(concept uint32) []byte { return c.texts.At(c.display[concept]) }

// Definition returns a concept's definition, or nil.
func (c *concepts) Definition(concept uint32) []byte {
	if c.meaning == nil {
		return nil
	}
	return c.texts.At(c.meaning[concept])
}

// Flags returns a concept's flags.
func (c *concepts) Flags(concept uint32) Flags { return c.flags[concept] }

// Locate finds a concept by its code: exactly, or in any case if the code system ignores it.
func (c *concepts) Locate(code []byte) (concept uint32, ok bool) {
	concept, ok = c.exact(code)
	if ok || c.caseSensitive {
		return concept, ok
	}
	return c.index.find(code, func(other uint32) bool { return EqualFold(c.Code(other), code) })
}

// exact finds a concept by its exact code.
func (c *concepts) exact(code []byte) (uint32, bool) {
	return c.index.find(code, func(other uint32) bool { return bytes.Equal(c.Code(other), code) })
}
