package consent

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Choice is what a person can give or refuse: an item, or a part of one.
type Choice struct {
	Name  string   // the item, and the parts that lead here, with spaces between them
	Parts []Choice // that it can be limited to

	scopes []smart.ResourceScope // that it gives, if it is about resources
}

// The names that follow an item's where its reading and its writing can be given apart.
const (
	readPart  = " read"
	writePart = " write"
)

// What can be given apart.
const (
	Reading = smart.Read | smart.Search
	Writing = smart.Create | smart.Update | smart.Delete
)

// Kind is what tells a part from others of the same item: a type, or a name for several, or a
// category.
func (c *Choice) Kind() string { return c.Name[strings.LastIndexByte(c.Name, ' ')+1:] }

// Permissions returns the names of the choices to read and to write; false if an item is only
// for one of them.
func (c *Choice) Permissions() (read, write string, both bool) {
	for _, s := range c.scopes {
		both = both || s.Permission&Reading != 0 && s.Permission&Writing != 0
	}
	return c.Name + readPart, c.Name + writePart, both
}

// Given returns what a person gives of an item when they tick these choices: the item itself,
// if they tick all, or what the ticked ones have in common with it. A part counts only if
// what it belongs to is ticked.
func (c *Choice) Given(ticked func(name string) bool) []string {
	scopes, all := c.chosen(ticked)
	permission := c.permission(ticked)
	if all && permission == Reading|Writing {
		return []string{c.Name}
	}
	var given []string
	for _, s := range scopes {
		s.Permission &= permission
		if text := s.String(); s.Permission != 0 && !slices.Contains(given, text) {
			given = append(given, text)
		}
	}
	return given
}

// permission is what the person lets the client do.
func (c *Choice) permission(ticked func(name string) bool) smart.Permission {
	p := Reading | Writing
	read, write, both := c.Permissions()
	if both && !ticked(read) {
		p &^= Reading
	}
	if both && !ticked(write) {
		p &^= Writing
	}
	return p
}

// chosen returns the scopes of the ticked choices, and whether these are all.
func (c *Choice) chosen(ticked func(name string) bool) (scopes []smart.ResourceScope, all bool) {
	if !ticked(c.Name) {
		return nil, false
	}
	all = true
	for i := range c.Parts {
		some, whole := c.Parts[i].chosen(ticked)
		scopes, all = append(scopes, some...), all && whole
	}
	if all {
		return c.scopes, true
	}
	return scopes, false
}

// Ticked returns the names of the choices by which a person gave this of an item.
func (c *Choice) Ticked(given []string) map[string]bool {
	names := map[string]bool{}
	if slices.Contains(given, c.Name) {
		given = []string{c.Name}
	}
	var permission smart.Permission
	for _, text := range given {
		if s, ok := smart.ParseResourceScope(text); ok {
			permission |= s.Permission
		}
	}
	read, write, _ := c.Permissions()
	names[read], names[write] = permission&Reading != 0, permission&Writing != 0
	c.tick(names, given, permission)
	names[c.Name] = len(given) > 0
	return names
}

// tick adds the names of a choice that is given, and of its parts. It reports whether any is.
func (c *Choice) tick(names map[string]bool, given []string, permission smart.Permission) bool {
	is := len(c.Parts) == 0 && covers(given, c.texts(permission))
	for i := range c.Parts {
		if c.Parts[i].tick(names, given, permission) {
			is = true
		}
	}
	names[c.Name] = is
	return is
}

// texts are the scopes of a choice, for some permissions.
func (c *Choice) texts(permission smart.Permission) (texts []string) {
	for _, s := range c.scopes {
		if s.Permission &= permission; s.Permission != 0 {
			texts = append(texts, s.String())
		}
	}
	return texts
}

// covers reports whether what was given includes all of these scopes.
func covers(given, scopes []string) bool {
	again, err := smart.Grant(scopes, given)
	return err == nil && slices.Equal(again, scopes)
}

// kind is a kind of data that people know by one name.
type kind struct {
	name  string // of the type, if it is one
	types []string
}

// kinds are what a scope for all types can be limited to. What is in none of them is given
// only with all.
var kinds = []kind{
	{"personal", []string{"Patient", "RelatedPerson"}},
	{"AllergyIntolerance", nil},
	{"Condition", nil},
	{"medicines", []string{"MedicationRequest", "MedicationDispense", "MedicationStatement", "MedicationAdministration", "Medication"}},
	{"Observation", nil},
	{"reports", []string{"DiagnosticReport", "ImagingStudy", "Specimen"}},
	{"Immunization", nil},
	{"procedures", []string{"Procedure", "ServiceRequest"}},
	{"visits", []string{"Encounter", "Appointment"}},
	{"plans", []string{"CarePlan", "Goal", "CareTeam"}},
	{"documents", []string{"DocumentReference", "Composition", "Binary"}},
	{"Device", nil},
	{"FamilyMemberHistory", nil},
	{"QuestionnaireResponse", nil},
	{"insurance", []string{"Coverage", "Claim", "ExplanationOfBenefit"}},
	{"providers", []string{"Practitioner", "PractitionerRole", "Organization", "Location"}},
	{"Provenance", nil},
}

const (
	conditionCategory   = "http://terminology.hl7.org/CodeSystem/condition-category|"
	observationCategory = "http://terminology.hl7.org/CodeSystem/observation-category|"
	usCore              = "http://hl7.org/fhir/us/core/CodeSystem/"
)

// category is a code that resources of a type are searched by.
type category struct{ code, token string }

// categories are those of US Core that people must be able to choose (45 CFR 170.315(g)(10)).
var categories = map[string][]category{
	"Condition": {
		{"problem-list-item", conditionCategory + "problem-list-item"},
		{"health-concern", usCore + "condition-category|health-concern"},
		{"encounter-diagnosis", conditionCategory + "encounter-diagnosis"},
	},
	"Observation": {
		{"laboratory", observationCategory + "laboratory"},
		{"vital-signs", observationCategory + "vital-signs"},
		{"social-history", observationCategory + "social-history"},
		{"survey", observationCategory + "survey"},
		{"sdoh", usCore + "us-core-category|sdoh"},
		{"clinical-test", usCore + "us-core-observation-category|clinical-test"},
	},
}

// parts are what a scope can be limited to. One that is already limited has none: to search by
// both would be a scope that nobody knows.
func parts(name string, scope smart.ResourceScope) []Choice {
	switch {
	case scope.Query != "":
		return nil
	case scope.Type == smart.AnyType:
		return partsByKind(name, scope)
	}
	return partsByCategory(name, scope)
}

func partsByKind(name string, scope smart.ResourceScope) (parts []Choice) {
	for _, k := range kinds {
		part := Choice{Name: name + " " + k.name}
		types := k.types
		if types == nil {
			types = []string{k.name}
		}
		for _, scope.Type = range types {
			part.scopes = append(part.scopes, scope)
		}
		if len(types) == 1 {
			part.Parts = partsByCategory(part.Name, scope)
		}
		parts = append(parts, part)
	}
	return parts
}

func partsByCategory(name string, scope smart.ResourceScope) (parts []Choice) {
	scope.V1 = false // SMART 1 has no queries
	for _, c := range categories[scope.Type] {
		scope.Query = "category=" + c.token
		parts = append(parts, Choice{Name: name + " " + c.code, scopes: []smart.ResourceScope{scope}})
	}
	return parts
}

// CategoryOf returns the code of the category that a scope is limited to; "" without one that
// a person can choose.
func CategoryOf(scope smart.ResourceScope) string {
	constraint := scope.Constraint()
	if len(constraint) != 1 || constraint[0].Name != "category" {
		return ""
	}
	for _, c := range categories[scope.Type] {
		if c.token == constraint[0].Value {
			return c.code
		}
	}
	return ""
}

// ChoiceOf returns what a person can choose of an item.
func ChoiceOf(item string) Choice {
	scope, ok := smart.ParseResourceScope(item)
	if !ok {
		return Choice{Name: item}
	}
	return Choice{Name: item, Parts: parts(item, scope), scopes: []smart.ResourceScope{scope}}
}
