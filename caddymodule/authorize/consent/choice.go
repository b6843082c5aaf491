package consent

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Choice is an item, or part of an item, that a person can allow or deny.
type Choice struct {
	Name  string   // item and enclosing parts, separated by spaces
	Parts []Choice // parts to which the item can be limited

	scopes []smart.ResourceScope // scopes of the choice; none for items other than resource scopes
}

// Suffixes of names for read and write access, if they can be chosen separately.
const (
	readPart  = " read"
	writePart = " write"
)

// Permissions that can be chosen separately.
const (
	Reading = smart.Read | smart.Search
	Writing = smart.Create | smart.Update | smart.Delete
)

// Kind returns the last part of the name: a resource type, a name for several types, or a category.
func (c *Choice) Kind() string { return c.Name[strings.LastIndexByte(c.Name, ' ')+1:] }

// Permissions returns the names of the choices for read and write access; false if an item has only one of them.
func (c *Choice) Permissions() (read, write string, both bool) {
	for _, s := range c.scopes {
		both = both || s.Permission&Reading != 0 && s.Permission&Writing != 0
	}
	return c.Name + readPart, c.Name + writePart, both
}

// GrantedScopes returns the scopes that a person allows by ticking choices: the item itself if all are ticked,
// otherwise the intersection of the item and the ticked choices. A part counts only if its parent is ticked.
func (c *Choice) GrantedScopes(ticked func(name string) bool) []string {
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

// permission returns the permissions of the ticked choices.
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

// chosen returns the scopes of the ticked choices, and whether all are ticked.
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

// Ticked returns the names of the choices that result in the given scopes.
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

// tick adds the names of an allowed choice and of its allowed parts, and reports whether any is allowed.
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

// texts returns the scopes of a choice limited to permissions.
func (c *Choice) texts(permission smart.Permission) (texts []string) {
	for _, s := range c.scopes {
		if s.Permission &= permission; s.Permission != 0 {
			texts = append(texts, s.String())
		}
	}
	return texts
}

// covers reports whether the given scopes include all of scopes.
func covers(given, scopes []string) bool {
	again, err := smart.Grant(scopes, given)
	return err == nil && slices.Equal(again, scopes)
}

// kind is a kind of data with a common name.
type kind struct {
	name  string // resource type, or a name for several types
	types []string
}

// kinds are the kinds of data to which a wildcard scope can be limited. Types in none of them are
// allowed only with all.
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

// category is a category of resources of a type, with its search token.
type category struct{ code, token string }

// categories are the categories of US Core that people must be able to choose (45 CFR 170.315(g)(10)).
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

// parts returns the parts to which a scope can be limited. A scope with a query has none, because
// combined queries would be an uncommon scope.
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

// CategoryOf returns the code of the category to which a scope is limited; "" without a selectable category.
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

// ChoiceOf returns the choices for an item.
func ChoiceOf(item string) Choice {
	scope, ok := smart.ParseResourceScope(item)
	if !ok {
		return Choice{Name: item}
	}
	return Choice{Name: item, Parts: parts(item, scope), scopes: []smart.ResourceScope{scope}}
}
