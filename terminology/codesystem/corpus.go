package codesystem

// conceptCorpus is all concepts of a code system, in a language.
type conceptCorpus struct {
	table     *Table
	languages Languages
}

// Len returns the number of concepts.
func (c *conceptCorpus) Len() int { return c.table.Len() }

// Code returns a concept's code.
func (c *conceptCorpus) Code(doc uint32) []byte { return c.table.Code(doc) }

// Display returns what is shown of a concept.
func (c *conceptCorpus) Display(doc uint32) []byte {
	display := c.table.Display(doc)
	if !c.languages.None() {
		display = c.languages.DisplayOf(c.table.AppendTexts(nil, doc))
	}
	if len(display) == 0 {
		return c.table.Code(doc)
	}
	return display
}

// AppendOthers appends the designations, and the display if another text is shown.
func (c *conceptCorpus) AppendOthers(dst [][]byte, doc uint32) [][]byte {
	if !c.languages.None() {
		return c.languages.AppendSearched(dst, c.table.AppendTexts(nil, doc))
	}
	for row, end := c.table.designations.rows(doc); row < end; row++ {
		dst = append(dst, c.table.texts.At(c.table.designations.value[row]))
	}
	return dst
}

// Inactive reports whether a concept is inactive.
func (c *conceptCorpus) Inactive(doc uint32) bool {
	return c.table.flags[doc]&FlagInactive != 0
}
