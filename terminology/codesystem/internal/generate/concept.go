package main

import (
	"cmp"
	"slices"
)

// resource is a CodeSystem, of which a table needs no more.
type resource struct {
	ResourceType  string     `json:"resourceType"`
	Language      string     `json:"language"`
	CaseSensitive bool       `json:"caseSensitive"`
	Property      []property `json:"property,omitempty"` // their codes
	Concept       []*concept `json:"concept"`
}

// tableOf returns a table of concepts with English displays, and codes whose case counts.
func tableOf(concepts []*concept, properties ...string) resource {
	r := resource{ResourceType: "CodeSystem", Language: "en", CaseSensitive: true, Concept: concepts}
	for _, code := range properties {
		r.Property = append(r.Property, property{Code: code})
	}
	return r
}

type concept struct {
	Code        string        `json:"code"`
	Display     string        `json:"display,omitempty"`
	Designation []designation `json:"designation,omitempty"`
	Property    []property    `json:"property,omitempty"`
	Concept     []*concept    `json:"concept,omitempty"`
}

type designation struct {
	Language string `json:"language"`
	Value    string `json:"value"`
}

type property struct {
	Code         string `json:"code"`
	ValueCode    string `json:"valueCode,omitempty"`
	ValueInteger *int   `json:"valueInteger,omitempty"`
	ValueBoolean bool   `json:"valueBoolean,omitempty"`
}

// name adds a name in another language, or another one in English.
func (c *concept) name(language, value string) {
	if value != "" && (language != "en" || value != c.Display) {
		c.Designation = append(c.Designation, designation{language, value})
	}
}

// sorted sorts concepts by their codes.
func sorted(concepts []*concept) []*concept {
	slices.SortFunc(concepts, func(a, b *concept) int { return cmp.Compare(a.Code, b.Code) })
	return concepts
}

// nested returns the concepts that are in no other, sorted, and puts each of the rest into its parent.
func nested(concepts []*concept, parents map[string]string) (roots []*concept) {
	byCode := make(map[string]*concept)
	for _, c := range sorted(concepts) {
		byCode[c.Code] = c
	}
	for _, c := range concepts {
		if p := byCode[parents[c.Code]]; p != nil {
			p.Concept = append(p.Concept, c)
		} else {
			roots = append(roots, c)
		}
	}
	return roots
}
