// Package translate implements the operation ConceptMap/$translate, which translates a concept to other code systems.
package translate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

func init() {
	api.Register(api.Operation{Type: "ConceptMap", Name: "translate", HasInstanceLevel: true, Handle: handle, Capability: `"translation":{"needsMap":true}`})
}

func handle(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, []outcome.MissingDefinition, error) {
	r, err := readRequest(c, inputs)
	if err != nil {
		return nil, nil, err
	}
	if l, err = c.WithRequestResources(l, r.common); err != nil {
		return nil, nil, err
	}
	result, err := Run(&c.Budget, l, r.query)
	if err != nil {
		return nil, nil, err
	}
	return result.AppendJSON(nil), result.Missing, nil
}

// Run performs ConceptMap/$translate. It returns the errors of [terminology.Library.Expand], but no error if nothing matches.
func Run(ctx context.Context, l *terminology.Library, q Query) (*Result, error) {
	set := l.Definitions()
	maps, err := applicableMaps(set, &q)
	if err != nil {
		return nil, err
	}
	isImplied := len(maps) == 0 && q.isLoadedReference()
	if isImplied && len(q.Codings) == 0 {
		_, err := impliedMap(set, &q, new(parameters.Coding))
		return new(Result), err
	}
	x := &translator{query: &q, definitions: set, budget: budget.FromContext(ctx, set.Bounds.VisitedCodes), dependencies: newDependencies(q.Dependencies), result: new(Result)}
	x.buffer = *parameters.NewWriter(nil)
	x.size = len(x.buffer.Dst)
	for i := range q.Codings {
		if isImplied {
			if maps, err = impliedMap(set, &q, &q.Codings[i]); err != nil {
				return nil, err
			}
		}
		for _, m := range maps {
			if err := x.translateInMap(&q.Codings[i], []*definitions.ConceptMap{m}); err != nil {
				return nil, err
			}
		}
		if set.Use(func() { err = x.convert(&q.Codings[i], l.CodeLists()) }); err != nil {
			return nil, err
		}
	}
	return x.finish(), nil
}

// Query contains the parameters of ConceptMap/$translate.
type Query struct {
	ConceptMapRef

	// Codings are the concepts to translate: a single one, or those of a CodeableConcept.
	Codings []parameters.Coding

	// SourceScope and TargetScope are the canonicals of the value sets that the concept map translates between.
	SourceScope, TargetScope string

	// TargetSystem is the code system of translations. "" means any.
	TargetSystem string

	// Reverse translates from the target to the source of a concept map.
	Reverse bool

	// Dependencies are the values of other elements that translations may depend on.
	Dependencies []Dependency

	// Limits limits the number of matches.
	Limits expansion.Limits

	UsesR5Names        bool // if Reverse is set, Match.Concept is the requested concept and Match.Source its translation, as in R5
	AllowsEitherSystem bool // the codings may belong to either of the two systems
}

// ConceptMapRef refers to a concept map by ID, resource, or URL. If all fields are empty, all concept maps are searched.
type ConceptMapRef struct {
	// ID is the ID of the resource.
	ID string

	// ConceptMap is the concept map resource in JSON.
	ConceptMap jsontext.Value

	// URL is the canonical, with or without a version. Version is the version if URL has none.
	URL, Version string
}

// isLoadedReference reports whether the request refers to a loaded concept map.
func (m *ConceptMapRef) isLoadedReference() bool {
	return m.ID != "" || m.ConceptMap == nil && m.URL != ""
}

// Dependency is an element and its values that a translation depends on (dependsOn) or produces (product).
type Dependency struct {
	// Element is the URL of the element.
	Element string

	// Values are the values of the element. If a value is not a coding, only Code is set.
	Values []parameters.Coding
}

// Result is the response of $translate.
type Result struct {
	// Found is the result parameter: whether there is a translation.
	Found bool

	// Message explains to users why there is no translation.
	Message string

	// Matches are the mappings in concept maps, including those that state that a concept has no translation.
	Matches []Match

	// Missing are the missing concept maps that could change the result.
	Missing []outcome.MissingDefinition
}

// Match is a mapping of a concept in a concept map.
type Match struct {
	// Equivalence is a code of http://hl7.org/fhir/concept-map-equivalence.
	Equivalence string

	// Concept is the translation, or nil if the concept map states that there is none.
	Concept *parameters.Coding

	// Source is the translation in a reverse match if the request uses the parameter names of R5, otherwise nil.
	Source *parameters.Coding

	// Products are other elements that the translation produces. DependsOn are elements that the translation depends on.
	Products, DependsOn []Dependency

	// Maps are the canonicals of the searched concept map and of the other concept maps followed from it.
	Maps []string

	// SourceComment and TargetComment are the comments in the concept map on the source and target element.
	SourceComment, TargetComment string
}

func (q *Query) matchesScope(m *definitions.ConceptMap) bool {
	if q.URL != "" && !m.Definition.MatchesCanonical(outcome.Canonical(q.URL, q.Version)) {
		return false
	}
	return isScope(m.SourceScope, q.SourceScope) && isScope(m.TargetScope, q.TargetScope)
}

// isScope reports whether the value set of a concept map matches the requested one.
func isScope(has, requested string) bool {
	url, version := outcome.SplitCanonical(has)
	wantedURL, wantedVersion := outcome.SplitCanonical(requested)
	return has == "" || requested == "" || url == wantedURL && (version == "" || wantedVersion == "" || definitions.MatchesVersion(version, wantedVersion))
}

// matchesGroup reports whether a group maps between the requested code systems.
func (q *Query) matchesGroup(g *definitions.MapGroup, c *parameters.Coding) bool {
	own, version, other := g.Source, g.SourceVersion, g.Target
	if q.Reverse {
		own, version, other = g.Target, g.TargetVersion, g.Source
	}
	if version != "" && c.Version != "" && !definitions.MatchesVersion(c.Version, version) {
		return false
	}
	fits := func(own, other string) bool {
		return (c.System == "" || own == c.System) && (q.TargetSystem == "" || other == q.TargetSystem)
	}
	return fits(own, other) || q.AllowsEitherSystem && fits(other, own)
}

// AppendJSON appends the Parameters response of $translate.
func (r *Result) AppendJSON(dst []byte) []byte {
	out := parameters.NewWriter(dst)
	for i := range r.Matches {
		out.Parts("match", r.Matches[i].parts()...)
	}
	out.Boolean("result", r.Found)
	out.Optional("message", "valueString", r.Message)
	return out.End()
}

func (m *Match) parts() []parameters.OutPart {
	parts := []parameters.OutPart{parameters.TextPart("equivalence", "valueCode", m.Equivalence), codingPart("concept", m.Concept), codingPart("source", m.Source)}
	parts = append(parts, dependencyParts("product", m.Products)...)
	parts = append(parts, dependencyParts("dependsOn", m.DependsOn)...)
	for i, canonical := range m.Maps {
		name := "used-conceptmap"
		if i == 0 { // R4 also uses the name source for the source code in a reverse translation; R5's name is unambiguous
			name = "originMap"
		}
		parts = append(parts, parameters.TextPart(name, "valueCanonical", canonical))
	}
	return append(parts, parameters.TextPart("sourceComment", "valueString", m.SourceComment), parameters.TextPart("targetComment", "valueString", m.TargetComment))
}

// codingPart returns a part with a Coding. The part is omitted if the Coding is nil.
func codingPart(name string, c *parameters.Coding) parameters.OutPart {
	if c == nil {
		return parameters.OutPart{}
	}
	return parameters.OutPart{Name: name, Kind: "valueCoding", Value: c.Append(nil)}
}

// dependencyParts returns a part for each value of each dependency.
func dependencyParts(name string, list []Dependency) (parts []parameters.OutPart) {
	for i := range list {
		for k := range list[i].Values {
			value := parameters.AppendPart([]byte{'['}, "element", "valueUri", fhirjson.AppendString(nil, list[i].Element))
			if c := &list[i].Values[k]; c.System+c.Code+c.Display != "" { // a concept map may specify no value
				value = parameters.AppendPart(append(value, ','), "concept", "valueCoding", c.Append(nil))
			}
			parts = append(parts, parameters.OutPart{Name: name, Kind: "part", Value: append(value, ']')})
		}
	}
	return parts
}

// translator translates concepts according to concept maps.
type translator struct {
	query        *Query
	definitions  *definitions.Set
	budget       *budget.Budget
	dependencies dependencies
	result       *Result
	buffer       parameters.Writer // reused to encode each match
	size         int               // total size of the matches in bytes of JSON
	followedMaps int               // number of references to other concept maps followed so far
	messages     []string
}

func (x *translator) finish() *Result {
	r := x.result
	if !r.Found && len(x.query.Codings) > 0 {
		x.messages = append(x.messages, fmt.Sprintf("no translation found for the code '%s' of system '%s'", x.query.Codings[0].Code, x.query.Codings[0].System))
	}
	r.Message = strings.Join(x.messages, "; ")
	switch {
	case r.Found:
		r.Missing = nil
	case r.Missing == nil && len(r.Matches) == 0 && x.query.ConceptMap == nil && !x.query.isLoadedReference():
		r.Missing = []outcome.MissingDefinition{{ResourceType: "ConceptMap"}} // any concept map that is not loaded could contain the code
	}
	return r
}

// translateInMap adds the translations of the last concept map in chain. The others are those that refer to it, in order.
func (x *translator) translateInMap(c *parameters.Coding, chain []*definitions.ConceptMap) error {
	m := chain[len(chain)-1]
	if err := x.spend(len(m.Groups)); err != nil {
		return err
	}
	mappedSystems := map[string]bool{} // target systems for which a group contains the code
	for i := range m.Groups {
		g := &m.Groups[i]
		if !x.query.matchesGroup(g, c) {
			continue
		}
		hasElement, err := x.translateInGroup(c, chain, g)
		if err != nil {
			return err
		}
		mappedSystems[g.Target] = mappedSystems[g.Target] || hasElement
	}
	for i := range m.Groups {
		if g := &m.Groups[i]; !x.query.Reverse && g.Unmapped.Mode != "" && !mappedSystems[g.Target] && x.query.matchesGroup(g, c) {
			if err := x.translateUnmapped(c, chain, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// translateInGroup adds the translations in a group. It reports whether a translation for the code was found.
func (x *translator) translateInGroup(c *parameters.Coding, chain []*definitions.ConceptMap, g *definitions.MapGroup) (hasElement bool, err error) {
	elements, err := g.ElementsWith(c.Code, x.query.Reverse, x.spend)
	if err != nil {
		return false, err
	}
	for i := range elements {
		e := &elements[i]
		if err := x.spend(1 + len(e.Targets)); err != nil {
			return hasElement, err
		}
		for k := range e.Targets {
			target := &e.Targets[k]
			code := e.Code
			if x.query.Reverse {
				code = target.Code
			}
			if code == c.Code && code != "" && (x.query.Reverse || !x.dependencies.contradicts(target)) {
				hasElement = true
				if err := x.add(chain, g, e, target); err != nil {
					return hasElement, err
				}
			}
		}
	}
	return hasElement, nil
}

// spend charges for examined groups, elements and targets.
func (x *translator) spend(n int) error {
	err := x.budget.Charge(n)
	if errors.Is(err, budget.ErrExceeded) {
		return outcome.Unprocessable("too-costly", "the translation examines more than %d targets; specify the concept map, or translate fewer codings at once", x.definitions.Bounds.VisitedCodes)
	}
	return err
}

// translateUnmapped adds the translation for codes that a group has no element for (R4 ConceptMap.group.unmapped).
func (x *translator) translateUnmapped(c *parameters.Coding, chain []*definitions.ConceptMap, g *definitions.MapGroup) error {
	u := &g.Unmapped
	switch u.Mode {
	case "provided", "use-source-code":
		target := &definitions.MapTarget{Code: c.Code, Equivalence: cmp.Or(u.Equivalence, "equivalent")}
		return x.add(chain, g, &definitions.MapElement{Code: c.Code}, target)
	case "fixed":
		return x.add(chain, g, &definitions.MapElement{Code: c.Code}, &definitions.MapTarget{Code: u.Code, Display: u.Display, Equivalence: u.Equivalence})
	case "other-map":
		return x.translateInOtherMap(c, chain, u.OtherMap)
	}
	return nil
}

// translateInOtherMap adds the translations of the concept map that the last one in chain refers to.
func (x *translator) translateInOtherMap(c *parameters.Coding, chain []*definitions.ConceptMap, reference string) error {
	other, ok := x.definitions.Maps.ConceptMap(reference)
	switch {
	case !ok:
		x.result.Missing = append(x.result.Missing, outcome.MissingDefinition{ResourceType: "ConceptMap", Canonical: reference})
		x.messages = append(x.messages, fmt.Sprintf("the concept map %s, to which %s refers, is not loaded", reference, chain[len(chain)-1].Canonical()))
		return nil
	case slices.Contains(chain, other):
		var names []string
		for _, m := range append(chain, other) {
			names = append(names, m.Canonical())
		}
		return outcome.New(http.StatusUnprocessableEntity, "processing", "", "", "concept maps refer to each other: "+strings.Join(names, " -> "))
	}
	if x.followedMaps++; x.followedMaps > maxFollowedMaps {
		return outcome.Unprocessable("too-costly", "the translation follows more than %d references between concept maps", maxFollowedMaps)
	}
	return x.translateInMap(c, append(chain, other))
}

// maxFollowedMaps is the maximum number of references to other concept maps followed per request.
const maxFollowedMaps = 1000

// add adds a match unless the limits are exceeded. A match without a target states that the concept has no translation.
func (x *translator) add(chain []*definitions.ConceptMap, g *definitions.MapGroup, e *definitions.MapElement, target *definitions.MapTarget) error {
	if limit := x.query.Limits.MaxEntries(); len(x.result.Matches) >= limit {
		return outcome.Unprocessable("too-costly", "more than %d matches; specify the concept map or the target, or translate fewer codings at once", limit)
	}
	m := Match{
		Equivalence: cmp.Or(definitions.Equivalences[target.Equivalence], target.Equivalence),
		Products:    dependenciesOf(target.Products), DependsOn: dependenciesOf(target.DependsOn),
		SourceComment: e.Comment, TargetComment: target.Comment,
	}
	from, to := &parameters.Coding{System: g.Source, Code: e.Code, Display: e.Display}, &parameters.Coding{System: g.Target, Code: target.Code, Display: target.Display}
	switch {
	case target.Code == "":
		m.Equivalence = "unmatched"
	case x.query.Reverse && !x.query.UsesR5Names: // R4: concept is the translation; equivalence is relative to the requested concept
		m.Equivalence, m.Concept = cmp.Or(inverseEquivalences[m.Equivalence], m.Equivalence), from
	case x.query.Reverse: // R5: concept is the requested concept; source is the translation
		m.Concept, m.Source = to, from
	default:
		m.Concept = to
	}
	for _, by := range chain {
		m.Maps = append(m.Maps, by.Canonical())
	}
	x.result.Matches = append(x.result.Matches, m)
	x.result.Found = x.result.Found || m.Equivalence != "unmatched" && m.Equivalence != "disjoint"
	x.buffer.Dst = x.buffer.Dst[:0]
	x.buffer.Parts("match", m.parts()...)
	if x.size += len(x.buffer.Dst); x.size > outcome.MaxResponseSize {
		return outcome.NewTooLong()
	}
	return nil
}

func dependenciesOf(list []definitions.MapAttribute) (dependencies []Dependency) {
	for _, a := range list {
		dependencies = append(dependencies, Dependency{Element: a.Property, Values: []parameters.Coding{{System: a.System, Code: a.Value, Display: a.Display}}})
	}
	return dependencies
}

// inverseEquivalences maps each asymmetric equivalence to that of the opposite direction.
var inverseEquivalences = map[string]string{"wider": "narrower", "narrower": "wider", "subsumes": "specializes", "specializes": "subsumes"}

// applicableMaps returns the concept maps to search: the one with the requested ID, the one in the request, or the loaded ones.
func applicableMaps(set *definitions.Set, q *Query) (list []*definitions.ConceptMap, err error) {
	t := &set.Maps
	if q.ID != "" {
		if m, ok := t.ByID(q.ID); ok && q.matchesScope(m) {
			list = append(list, m)
		}
		return list, nil
	}
	if q.ConceptMap != nil {
		m, err := definitions.ParseConceptMap(q.ConceptMap)
		return []*definitions.ConceptMap{m}, err
	}
	for _, maps := range t.Layers {
		for _, m := range maps {
			if q.matchesScope(m) {
				list = append(list, m)
			}
		}
	}
	return list, nil
}

// impliedMap returns the concept map that a release implies in the version of a coding, or an error if there is none.
func impliedMap(set *definitions.Set, q *Query, c *parameters.Coding) ([]*definitions.ConceptMap, error) {
	name := outcome.Canonical(q.URL, q.Version)
	if q.ID != "" {
		return nil, outcome.NewUnknown("", "concept map with the id "+q.ID+" is not loaded")
	}
	m, ok := set.ImpliedConceptMap(name, c.System, c.Version)
	if !ok {
		return nil, outcome.NewUnknown("", "concept map "+name+" is not loaded")
	}
	return []*definitions.ConceptMap{m}, nil
}

// dependencies contains the elements in the request that translations may depend on (R4 parameter dependency).
type dependencies struct {
	elements map[string]bool
	values   map[definitions.MapAttribute]bool // values with and without their code system
}

func newDependencies(list []Dependency) dependencies {
	d := dependencies{elements: make(map[string]bool), values: make(map[definitions.MapAttribute]bool)}
	for i := range list {
		d.elements[list[i].Element] = true
		for _, c := range list[i].Values {
			d.values[definitions.MapAttribute{Property: list[i].Element, System: c.System, Value: c.Code}] = true
			d.values[definitions.MapAttribute{Property: list[i].Element, Value: c.Code}] = true
		}
	}
	return d
}

// contradicts reports whether a target depends on a value (R4 ConceptMap.group.element.target.dependsOn) that differs from the
// one in the request. Elements that are absent from the request are ignored.
func (d *dependencies) contradicts(target *definitions.MapTarget) bool {
	for i := range target.DependsOn {
		on := &target.DependsOn[i]
		system, _ := outcome.SplitCanonical(on.System)
		if d.elements[on.Property] && !d.values[definitions.MapAttribute{Property: on.Property, System: system, Value: cmp.Or(on.Value, on.Display)}] {
			return true
		}
	}
	return false
}

// request is a $translate request with parameter names of R4 or R5.
type request struct {
	common       *api.Parameters
	query        Query
	sourceSystem string
	version      string // version parameter, which applies to the code parameter
}

func readRequest(c *api.Call, inputs []parameters.Input) (*request, error) {
	shared, err := c.Parameters(inputs)
	if err != nil {
		return nil, err
	}
	r := &request{common: shared}
	hasCode := 0
	for i := range inputs {
		isConcept, err := r.readParameter(&inputs[i])
		if err != nil {
			return nil, err
		}
		if isConcept {
			hasCode++
		}
	}
	if hasCode != 1 {
		return nil, outcome.BadRequest("required", "exactly one of the parameters code, coding and codeableConcept is required, or one of R5's "+
			"sourceCode, sourceCoding, sourceCodeableConcept, targetCode, targetCoding and targetCodeableConcept")
	}
	r.resolveDirection()
	r.query.ID, r.query.URL, r.query.Limits = shared.ID, shared.URL, shared.Limits
	return r, nil
}

// readParameter reads a parameter. It reports whether the parameter is a concept to translate.
func (r *request) readParameter(in *parameters.Input) (isConcept bool, err error) {
	switch in.Name {
	case "code", "sourceCode", "targetCode":
		r.query.Codings = []parameters.Coding{{Code: in.Value}}
	case "coding", "sourceCoding", "targetCoding":
		var c parameters.Coding
		c, err = parameters.ParseCoding(in.Complex, in.Name)
		r.query.Codings = []parameters.Coding{c}
	case "codeableConcept", "sourceCodeableConcept", "targetCodeableConcept":
		r.query.Codings, err = parameters.ParseConcept(in.Complex)
	case "conceptMap":
		return false, r.readMap(in)
	case "dependency":
		return false, r.readDependency(in)
	default:
		r.readMapSelector(in)
		return false, nil
	}
	r.query.Reverse = r.query.Reverse || strings.HasPrefix(in.Name, "target")
	return true, err
}

// readMapSelector reads a parameter that specifies which concept maps to use.
func (r *request) readMapSelector(in *parameters.Input) {
	switch in.Name {
	case "system", "sourceSystem":
		r.sourceSystem = in.Value
	case "targetsystem", "targetSystem":
		r.query.TargetSystem = in.Value
	case "version":
		r.version = in.Value
	case "conceptMapVersion":
		r.query.Version = in.Value
	case "source", "sourceScope":
		r.query.SourceScope = in.Value
	case "target", "targetScope":
		r.query.TargetScope = in.Value
	case "reverse":
		r.query.Reverse = r.query.Reverse || in.Value == "true"
	}
}

func (r *request) readMap(in *parameters.Input) error {
	switch {
	case in.Resource == nil:
		return outcome.BadRequest("invalid", "the parameter conceptMap must be a resource, which requires a POST")
	case r.query.ConceptMap != nil:
		return outcome.BadRequest("invalid", "the parameter conceptMap must not be repeated")
	}
	r.query.ConceptMap = in.Resource
	return nil
}

// resolveDirection determines the code systems of the codings and of the translations. With the parameter names of R5, a
// reverse translation starts from the target. R4 does not specify whether its parameter reverse swaps system and targetsystem,
// so both directions are tried.
func (r *request) resolveDirection() {
	own, other := r.sourceSystem, r.query.TargetSystem
	switch {
	case !r.query.Reverse:
	case r.common.HasParameter("reverse"):
		r.query.AllowsEitherSystem = own != "" && other != ""
		if r.query.SourceScope != "" || r.query.TargetScope != "" {
			r.query.SourceScope, r.query.TargetScope = r.query.TargetScope, r.query.SourceScope
		}
	case own != "" && other != "":
		own, other = other, own
	case own == "":
		own, other = other, ""
	}
	for i := range r.query.Codings {
		if c := &r.query.Codings[i]; c.System == "" {
			c.System, c.Version = own, cmp.Or(c.Version, r.version)
		}
	}
	r.query.TargetSystem = other
	r.query.UsesR5Names = !r.common.HasParameter("reverse")
}

// readDependency reads a dependency parameter. Its parts have the names of R4 or R5.
func (r *request) readDependency(in *parameters.Input) error {
	var d Dependency
	for i := range in.Parts {
		part := &in.Parts[i]
		switch part.Name {
		case "element", "attribute":
			d.Element = part.Value
		case "concept", "value":
			list, err := dependencyValues(part)
			if err != nil {
				return err
			}
			d.Values = append(d.Values, list...)
		}
	}
	if d.Element == "" {
		return outcome.BadRequest("required", "each parameter dependency requires the part element")
	}
	r.query.Dependencies = append(r.query.Dependencies, d)
	return nil
}

// dependencyValues returns the values of a dependency: a CodeableConcept including its text, a Coding, or a primitive.
func dependencyValues(in *parameters.Input) ([]parameters.Coding, error) {
	if in.Complex == nil {
		return []parameters.Coding{{Code: in.Value}}, nil
	}
	codings, err := parameters.ParseConcept(in.Complex)
	if err != nil {
		return nil, err
	}
	single, err := parameters.ParseCoding(in.Complex, "dependency")
	if err != nil {
		return nil, err
	}
	var text string
	if err := fhirjson.NewValueReader(in.Complex).Strings(fhirjson.String{Name: "text", Destination: &text}); err != nil {
		return nil, outcome.BadRequest("structure", "invalid CodeableConcept: %v", err)
	}
	return slices.DeleteFunc(append(codings, single, parameters.Coding{Code: text}), func(c parameters.Coding) bool { return c.Code == "" }), nil
}

// conversionFactor is the element of a product that contains the factor for converting values to another unit.
const conversionFactor = "https://github.com/caddy-fhir/caddy-fhir/terminology#conversion-factor"

// conversion finds the codes to which a code can be converted. Its code system supports conversion.
type conversion struct {
	translator *translator
	expander   compose.Expander
	cs         *definitions.CodeSystem
	from       codesystem.Concept
	code       string // requested code, unmodified
}

// convert adds the codes that are commensurable with a coding. They come from the requested value set or else from the common
// codes. It adds nothing if the request refers to a concept map or another code system, or has no target.
func (x *translator) convert(c *parameters.Coding, cache *compose.CodeListCache) error {
	q, systems := x.query, &x.definitions.Systems
	index := systems.CodeSystem(c.System, c.Version)
	scope := q.TargetScope
	if q.Reverse {
		scope = q.SourceScope
	}
	sameSystem := q.TargetSystem == c.System || q.TargetSystem == "" && scope != ""
	if !sameSystem || index == definitions.None || q.isLoadedReference() || q.ConceptMap != nil {
		return nil
	}
	cs := systems.CodeSystems[index]
	if cs.Concepts.Converter == nil {
		return nil
	}
	vs, ok := x.definitions.ResolveValueSet(cmp.Or(scope, cs.CommonCodes), "")
	if !ok {
		return nil
	}
	from, ok := cs.Concepts.Locate([]byte(c.Code))
	if !ok {
		x.messages = append(x.messages, cs.Concepts.CodeExplainer.InvalidReason([]byte(c.Code)))
		return nil
	}
	expander := compose.Expander{Definitions: x.definitions, Cache: cache, Rules: new(compose.Rules), Budget: x.budget}
	return (&conversion{translator: x, expander: expander, cs: cs, from: from, code: c.Code}).addConversions(vs)
}

// conversionSteps is the cost in steps of a conversion per byte of the two codes.
const conversionSteps = 20

// addConversions adds the codes of a value set that are commensurable, equivalent ones first.
func (x *conversion) addConversions(vs *definitions.ValueSet) error {
	list, err := x.expander.Codes(vs)
	if err != nil {
		return err
	}
	var found []definitions.MapTarget
	for _, e := range list.Entries {
		code := x.translator.definitions.Code(e)
		if err := x.translator.spend((len(x.code) + len(code)) * conversionSteps); err != nil {
			return err
		}
		if x.translator.definitions.Systems.List[x.translator.definitions.SystemOf(e)].URL != x.cs.URL {
			continue
		}
		to, ok := x.cs.Concepts.Locate(code)
		if !ok {
			continue
		}
		if target, ok := x.target(to); ok {
			found = append(found, target)
		}
	}
	sort.SliceStable(found, func(i, k int) bool {
		return found[i].Equivalence == "equivalent" && found[k].Equivalence != "equivalent"
	})
	group, element := &definitions.MapGroup{Source: x.cs.URL, Target: x.cs.URL}, definitions.MapElement{Code: x.code}
	for i := range found {
		e, target := element, found[i]
		if x.translator.query.Reverse { // the found code belongs to the source
			e.Code, e.Display, target.Code, target.Display = target.Code, target.Display, x.code, ""
		}
		if err := x.translator.add(nil, group, &e, &target); err != nil {
			return err
		}
	}
	return nil
}

// target returns another code and its relationship to the requested code. ok is false if they are not commensurable.
func (x *conversion) target(other codesystem.Concept) (t definitions.MapTarget, ok bool) {
	from, to := x.from, other
	if x.translator.query.Reverse {
		from, to = to, from
	}
	factor, equal, ok := x.cs.Concepts.Converter.Convert(from, to)
	code, display, _ := x.cs.Concepts.Concept(other)
	t = definitions.MapTarget{Code: string(code), Display: string(display), Equivalence: "relatedto"}
	if equal {
		t.Equivalence = "equivalent"
	}
	if factor != "" {
		t.Products = []definitions.MapAttribute{{Property: conversionFactor, Value: factor}}
	}
	return t, ok
}
