package ucum

import (
	"strconv"
	"strings"
)

// describe returns an expression in words: (milligram) / (deciliter) for mg/dL.
func describe(parts []part) string {
	var b strings.Builder
	for i := range parts {
		p := &parts[i]
		switch {
		case p.divide && i == 0:
			b.WriteString("/ ")
		case p.divide:
			b.WriteString(" / ")
		case i > 0:
			b.WriteString(" * ")
		}
		p.describe(&b)
	}
	return b.String()
}

func (p *part) describe(b *strings.Builder) {
	switch {
	case p.group != nil:
		b.WriteString("(" + describe(p.group) + ")")
	case p.unit == nil && p.number == "":
		b.WriteString("1") // an annotation
	case p.unit == nil:
		b.WriteString(p.number)
	default:
		b.WriteString("(")
		if p.prefix != nil {
			b.WriteString(p.prefix.Name)
		}
		b.WriteString(p.unit.Names[0])
		if p.exponent != 1 {
			b.WriteString(" ^ " + strconv.Itoa(p.exponent))
		}
		b.WriteString(")")
	}
}
