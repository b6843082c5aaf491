package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// tabular is NCHS's tabular list of ICD-10-CM.
type tabular struct {
	Version  string `xml:"version"`
	Chapters []struct {
		Sections []struct {
			Diagnoses []diagnosis `xml:"diag"`
		} `xml:"section"`
	} `xml:"chapter"`
}

// diagnosis is a code in the tabular list with its child codes.
type diagnosis struct {
	Code      string             `xml:"name"`
	Title     string             `xml:"desc"`
	Terms     []string           `xml:"inclusionTerm>note"`
	Sevenths  []seventhCharacter `xml:"sevenChrDef>extension"` // also apply to child codes
	Diagnoses []diagnosis        `xml:"diag"`
}

// seventhCharacter is a seventh character of codes. The tabular list defines it once for a code and its child codes.
type seventhCharacter struct {
	Character string `xml:"char,attr"`
	Title     string `xml:",chardata"`
}

func readTabular(r io.Reader) (*tabular, error) {
	t := &tabular{}
	if err := xml.NewDecoder(r).Decode(t); err != nil {
		return nil, fmt.Errorf("tabular list: %w", err)
	}
	return t, nil
}

// concepts returns the codes in the order of the list, parents before children. A code with a seventh character is included if
// it is in valid, which contains codes without dots.
func (t *tabular) concepts(valid map[string]bool) []concept {
	var all []concept
	for _, c := range t.Chapters {
		for _, s := range c.Sections {
			for i := range s.Diagnoses {
				all = s.Diagnoses[i].appendTo(all, "", nil, valid)
			}
		}
	}
	return all
}

// appendTo appends the code and its child codes.
func (d *diagnosis) appendTo(all []concept, parent string, sevenths []seventhCharacter, valid map[string]bool) []concept {
	if len(d.Sevenths) > 0 {
		sevenths = d.Sevenths
	}
	at := len(all)
	all = append(all, concept{code: strings.TrimSpace(d.Code), display: collapseSpaces(d.Title), parent: parent, terms: d.Terms})
	for i := range d.Diagnoses {
		all = d.Diagnoses[i].appendTo(all, all[at].code, sevenths, valid)
	}
	if len(d.Diagnoses) == 0 {
		for _, s := range sevenths {
			if c := all[at].with(s); valid[strings.ReplaceAll(c.code, ".", "")] {
				all = append(all, c)
			}
		}
	}
	all[at].header = len(all) > at+1
	return all
}

// collapseSpaces returns text with words separated by single spaces.
func collapseSpaces(text string) string { return strings.Join(strings.Fields(text), " ") }
