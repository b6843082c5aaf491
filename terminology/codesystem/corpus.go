package codesystem

// conceptCorpus makes the concepts of a code system searchable in a list of languages.
type conceptCorpus struct {
	table     *Table
	languages Languages
}

// Len implements [textindex.Corpus], as do the methods below.
func (c *conceptCorpus) Len() int                 { return c.table.Len() }
func (c *conceptCorpus) Code(doc uint32) []byte   { return c.table.Code(doc) }
func (c *conceptCorpus) Inactive(doc uint32) bool { return c.table.flags[doc]&FlagInactive != 0 }

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

func (c *conceptCorpus) AppendOthers(dst [][]byte, doc uint32) [][]byte {
	if !c.languages.None() {
		return c.languages.AppendSearched(dst, c.table.AppendTexts(nil, doc))
	}
	for row, end := c.table.designations.rows(doc); row < end; row++ {
		dst = append(dst, c.table.texts.At(c.table.designations.value[row]))
	}
	return dst
}
