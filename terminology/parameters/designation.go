package parameters

// Designation is a name of a concept.
type Designation struct {
	// Language is empty if it is not known.
	Language string

	// Use has no Code if it is not known.
	Use Coding

	// Value is the name itself.
	Value string

	// Source is the canonical of the supplement with the designation; empty: it is the code system's own.
	Source string
}

// WriteDesignation writes the parameter designation of $lookup.
func WriteDesignation(w *Writer, d *Designation) {
	use := OutPart{}
	if d.Use.Code != "" {
		use = OutPart{Name: "use", Kind: "valueCoding", Value: d.Use.Append(nil)}
	}
	w.Parts("designation", TextPart("language", "valueCode", d.Language), use,
		TextPart("value", "valueString", d.Value), TextPart("source", "valueCanonical", d.Source))
}
