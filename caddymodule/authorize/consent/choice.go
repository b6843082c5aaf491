package consent

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Choice is a checkbox of the consent page: a requested item, or a part of an item, that a person can allow or deny.
type Choice struct {
	Name  string   // name of the item, followed by the names of the enclosing parts and of the part, separated by spaces
	Parts []Choice // parts to which the item can be limited

	scopes []smart.ResourceScope // scopes that the choice stands for; none for items other than resource scopes
}

// Suffixes of the names of choices for read and write access, if these can be chosen separately.
const (
	readSuffix  = " read"
	writeSuffix = " write"
)

// Permissions that can be chosen separately.
const (
	ReadPermission  = smart.Read | smart.Search
	WritePermission = smart.Create | smart.Update | smart.Delete
)

// Kind returns the last part of the choice's name: a resource type, a name for several types, or a category.
func (c *Choice) Kind() string { return c.Name[strings.LastIndexByte(c.Name, ' ')+1:] }

// Permissions returns the names of the choices for read and write access. both is false if c permits only one of them.
func (c *Choice) Permissions() (read, write string, both bool) {
	for _, s := range c.scopes {
		both = both || s.Permission&ReadPermission != 0 && s.Permission&WritePermission != 0
	}
	return c.Name + readSuffix, c.Name + writeSuffix, both
}

// GrantedScopes returns the scopes that a person allows by ticking choices: the item itself if all are ticked, otherwise the
// intersection of the item and the ticked choices. A part is ignored unless its parent is ticked.
func (c *Choice) GrantedScopes(isTicked func(name string) bool) []string {
	scopes, all := c.tickedScopes(isTicked)
	permission := c.tickedPermissions(isTicked)
	if all && permission == ReadPermission|WritePermission {
		return []string{c.Name}
	}
	var allowed []string
	for _, s := range scopes {
		s.Permission &= permission
		if text := s.String(); s.Permission != 0 && !slices.Contains(allowed, text) {
			allowed = append(allowed, text)
		}
	}
	return allowed
}

// IsContradictory reports whether a choice or one of its parts is ticked, although everything below it is unticked.
func (c *Choice) IsContradictory(isTicked func(name string) bool) bool {
	hasNoTickedPart := func(part Choice) bool {
		scopes, _ := part.tickedScopes(isTicked)
		return isTicked(part.Name) && len(scopes) == 0
	}
	return isTicked(c.Name) && (len(c.GrantedScopes(isTicked)) == 0 || slices.ContainsFunc(c.Parts, hasNoTickedPart))
}

// tickedPermissions returns the permissions that the ticked choices for read and write access allow.
func (c *Choice) tickedPermissions(isTicked func(name string) bool) smart.Permission {
	p := ReadPermission | WritePermission
	read, write, both := c.Permissions()
	if both && !isTicked(read) {
		p &^= ReadPermission
	}
	if both && !isTicked(write) {
		p &^= WritePermission
	}
	return p
}

// tickedScopes returns the scopes of the ticked choices, and whether all choices are ticked.
func (c *Choice) tickedScopes(isTicked func(name string) bool) (scopes []smart.ResourceScope, all bool) {
	if !isTicked(c.Name) {
		return nil, false
	}
	all = true
	for i := range c.Parts {
		partScopes, allTicked := c.Parts[i].tickedScopes(isTicked)
		scopes, all = append(scopes, partScopes...), all && allTicked
	}
	if all {
		return c.scopes, true
	}
	return scopes, false
}

// TickedNames returns the names of the choices that must be ticked to allow the given scopes.
func (c *Choice) TickedNames(allowed []string) map[string]bool {
	names := map[string]bool{}
	if slices.Contains(allowed, c.Name) {
		allowed = []string{c.Name}
	}
	var permission smart.Permission
	for _, text := range allowed {
		if s, ok := smart.ParseResourceScope(text); ok {
			permission |= s.Permission
		}
	}
	read, write, _ := c.Permissions()
	names[read], names[write] = permission&ReadPermission != 0, permission&WritePermission != 0
	c.addTickedNames(names, allowed, permission)
	names[c.Name] = len(allowed) > 0
	return names
}

// addTickedNames sets by name whether a choice and its parts are allowed, and reports whether any of them is.
func (c *Choice) addTickedNames(names map[string]bool, allowed []string, permission smart.Permission) bool {
	is := len(c.Parts) == 0 && covers(allowed, c.scopeStrings(permission))
	for i := range c.Parts {
		if c.Parts[i].addTickedNames(names, allowed, permission) {
			is = true
		}
	}
	names[c.Name] = is
	return is
}

// scopeStrings returns the scopes of a choice, limited to a permission.
func (c *Choice) scopeStrings(permission smart.Permission) (texts []string) {
	for _, s := range c.scopes {
		if s.Permission &= permission; s.Permission != 0 {
			texts = append(texts, s.String())
		}
	}
	return texts
}

// covers reports whether allowed includes all of scopes.
func covers(allowed, scopes []string) bool {
	merged, err := smart.Grant(scopes, allowed)
	return err == nil && slices.Equal(merged, scopes)
}

// dataKind is a group of resource types with a common name.
type dataKind struct {
	name  string // resource type, or a name for several types
	types []string
}

// dataKinds are the kinds of data to which a wildcard scope can be limited. Types that are not listed are included only if all
// kinds are allowed.
var dataKinds = []dataKind{
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
	conditionCategoryToken   = "http://terminology.hl7.org/CodeSystem/condition-category|"
	observationCategoryToken = "http://terminology.hl7.org/CodeSystem/observation-category|"
	usCoreSystems            = "http://hl7.org/fhir/us/core/CodeSystem/"
)

// category is a category of resources of a type. token is its search parameter value.
type category struct{ code, token string }

// categories are the US Core categories that people must be able to choose, by resource type (45 CFR 170.315(g)(10)).
var categories = map[string][]category{
	"Condition": {
		{"problem-list-item", conditionCategoryToken + "problem-list-item"},
		{"health-concern", usCoreSystems + "condition-category|health-concern"},
		{"encounter-diagnosis", conditionCategoryToken + "encounter-diagnosis"},
	},
	"Observation": {
		{"laboratory", observationCategoryToken + "laboratory"},
		{"vital-signs", observationCategoryToken + "vital-signs"},
		{"social-history", observationCategoryToken + "social-history"},
		{"survey", observationCategoryToken + "survey"},
		{"sdoh", usCoreSystems + "us-core-category|sdoh"},
		{"clinical-test", usCoreSystems + "us-core-observation-category|clinical-test"},
	},
}

// partsOf returns the parts to which a scope can be limited. A scope with a query has none, because combining its query with
// another would result in an uncommon scope.
func partsOf(name string, scope smart.ResourceScope) []Choice {
	switch {
	case scope.Query != "":
		return nil
	case scope.Type == smart.AnyType:
		return partsByKind(name, scope)
	}
	return partsByCategory(name, scope)
}

func partsByKind(name string, scope smart.ResourceScope) (parts []Choice) {
	for _, k := range dataKinds {
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
	scope.IsV1 = false // SMART 1 scopes cannot contain queries
	for _, c := range categories[scope.Type] {
		scope.Query = "category=" + c.token
		parts = append(parts, Choice{Name: name + " " + c.code, scopes: []smart.ResourceScope{scope}})
	}
	return parts
}

// CategoryOf returns the code of the category to which a scope is limited; "" if it is not limited to a selectable category.
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

// NewChoice returns the choice for an item, with its parts.
func NewChoice(item string) Choice {
	scope, ok := smart.ParseResourceScope(item)
	if !ok {
		return Choice{Name: item}
	}
	return Choice{Name: item, Parts: partsOf(item, scope), scopes: []smart.ResourceScope{scope}}
}
