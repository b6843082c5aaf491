// Package translate implements the operation ConceptMap/$translate: translations of a concept to other code systems.
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
	api.Register(api.Operation{Type: "ConceptMap", Name: "translate", OnInstance: true, Answer: answer, Capability: `"translation":{"needsMap":true}`})
}

func answer(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, []outcome.Missing, error) {
	r, err := readRequest(c, inputs)
	if err != nil {
		return nil, nil, err
	}
	if l, err = c.Library(l, r.shared); err != nil {
		return nil, nil, err
	}
	result, err := Run(&c.Budget, l, r.query)
	if err != nil {
		return nil, nil, err
	}
	return result.AppendJSON(nil), result.Missing, nil
}

// Run performs ConceptMap/$translate. Its errors are those of [terminology.Library.Expand]; a missing translation is
// not an error.
func Run(ctx context.Context, l *terminology.Library, q Query) (*Result, error) {
	set := l.Definitions()
	maps, err := applicable(&set.Maps, &q)
	if err != nil {
		return nil, err
	}
	if len(maps) == 0 && q.isNamed() {
		name := outcome.Canonical(q.URL, q.Version)
		if q.ID != "" {
			name = "with the id " + q.ID
		}
		return nil, outcome.Unknown("", "concept map "+name+" is not known")
	}
	x := &translator{asked: &q, library: set, budget: budget.Of(ctx, set.Bounds.Gathered), told: newDependencies(q.Dependencies), result: new(Result)}
	x.written = *parameters.NewWriter(nil)
	x.size = len(x.written.Dst)
	for i := range q.Codings {
		for _, m := range maps {
			if err := x.inMap(&q.Codings[i], []*definitions.ConceptMap{m}); err != nil {
				return nil, err
			}
		}
		if set.Use(func() { err = x.convert(&q.Codings[i], l.CodeLists()) }); err != nil {
			return nil, err
		}
	}
	return x.end(), nil
}

// Query contains the parameters of ConceptMap/$translate.
type Query struct {
	ConceptMapRef

	// Codings are the concepts to translate: one, or those of a CodeableConcept.
	Codings []parameters.Coding

	// SourceScope and TargetScope are the canonicals of the value sets that the concept map translates between.
	SourceScope, TargetScope string

	// TargetSystem is the code system of translations; empty for any.
	TargetSystem string

	// Reverse translates from the target to the source of concept maps.
	Reverse bool

	// Dependencies are values of other elements that translations may depend on.
	Dependencies []Dependency

	// Limits contains the maximum number of matches.
	Limits expansion.Limits

	InTermsOfR5 bool // with Reverse, Match.Concept is the requested concept and Match.Source the translation, as in R5
	EitherWay   bool // either of the two systems may be that of the codings
}

// ConceptMapRef refers to a concept map by ID, resource, or URL. If all are empty, all concept maps are searched.
type ConceptMapRef struct {
	// ID is the ID of the resource.
	ID string

	// ConceptMap is the concept map resource in JSON.
	ConceptMap jsontext.Value

	// URL is the canonical, optionally without version. Version is the version.
	URL, Version string
}

// isNamed reports whether the request refers to a loaded concept map.
func (m *ConceptMapRef) isNamed() bool { return m.ID != "" || m.ConceptMap == nil && m.URL != "" }

// Dependency is an element with its values that a translation depends on (dependsOn) or produces (product).
type Dependency struct {
	// Element is the URL of the element.
	Element string

	// Values are the values of the element. A value other than a code only has a Code.
	Values []parameters.Coding
}

// Result is the response of $translate.
type Result struct {
	// Found is the parameter result: whether a translation exists.
	Found bool

	// Message is the human-readable reason for a missing translation.
	Message string

	// Matches are the mappings of concept maps, including explicitly unmapped concepts.
	Matches []Match

	// Missing are the concept maps that could change the result.
	Missing []outcome.Missing
}

// Match is a mapping of a concept.
type Match struct {
	// Equivalence is a code of http://hl7.org/fhir/concept-map-equivalence.
	Equivalence string

	// Concept is the translation; nil for an unmapped concept.
	Concept *parameters.Coding

	// Source is the translation of a reverse match if the request uses R5's names; otherwise nil.
	Source *parameters.Coding

	// Products are elements that the translation also produces. DependsOn are those that it depends on.
	Products, DependsOn []Dependency

	// Maps are the canonicals of the searched concept map and of the other maps that it refers to.
	Maps []string

	// SourceComment and TargetComment are the comments of the concept map on both sides.
	SourceComment, TargetComment string
}

func (q *Query) applies(m *definitions.ConceptMap) bool {
	if q.URL != "" && !m.Definition.IsNamed(outcome.Canonical(q.URL, q.Version)) {
		return false
	}
	return isScope(m.SourceScope, q.SourceScope) && isScope(m.TargetScope, q.TargetScope)
}

// isScope reports whether a value set of a concept map matches the requested one.
func isScope(has, wanted string) bool {
	url, version := outcome.Split(has)
	wantedURL, wantedVersion := outcome.Split(wanted)
	return has == "" || wanted == "" || url == wantedURL && (version == "" || wantedVersion == "" || definitions.MatchesVersion(version, wantedVersion))
}

// isAbout reports whether a group maps between the requested systems.
func (q *Query) isAbout(g *definitions.MapGroup, c *parameters.Coding) bool {
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
	return fits(own, other) || q.EitherWay && fits(other, own)
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
		if i == 0 { // R4's name source is also used for the source code in reverse; R5's name is unambiguous
			name = "originMap"
		}
		parts = append(parts, parameters.TextPart(name, "valueCanonical", canonical))
	}
	return append(parts, parameters.TextPart("sourceComment", "valueString", m.SourceComment), parameters.TextPart("targetComment", "valueString", m.TargetComment))
}

// codingPart returns a part with a Coding; a nil Coding is omitted.
func codingPart(name string, c *parameters.Coding) parameters.OutPart {
	if c == nil {
		return parameters.OutPart{}
	}
	return parameters.OutPart{Name: name, Kind: "valueCoding", Value: c.Append(nil)}
}

// dependencyParts returns a part for each value of the elements.
func dependencyParts(name string, list []Dependency) (parts []parameters.OutPart) {
	for i := range list {
		for k := range list[i].Values {
			value := parameters.AppendPart([]byte{'['}, "element", "valueUri", fhirjson.AppendString(nil, list[i].Element))
			if c := &list[i].Values[k]; c.System+c.Code+c.Display != "" { // may be empty in a concept map
				value = parameters.AppendPart(append(value, ','), "concept", "valueCoding", c.Append(nil))
			}
			parts = append(parts, parameters.OutPart{Name: name, Kind: "part", Value: append(value, ']')})
		}
	}
	return parts
}

// translator translates concepts with concept maps.
type translator struct {
	asked    *Query
	library  *definitions.Set
	budget   *budget.Budget
	told     dependencies
	result   *Result
	written  parameters.Writer // buffer for the last match
	size     int               // size of the matches in bytes of JSON
	handed   int               // number of references followed to other concept maps
	messages []string
}

func (x *translator) end() *Result {
	r := x.result
	if !r.Found && len(x.asked.Codings) > 0 {
		x.messages = append(x.messages, fmt.Sprintf("no translation is known for the code '%s' of system '%s'", x.asked.Codings[0].Code, x.asked.Codings[0].System))
	}
	r.Message = strings.Join(x.messages, "; ")
	switch {
	case r.Found:
		r.Missing = nil
	case r.Missing == nil && len(r.Matches) == 0 && x.asked.ConceptMap == nil && !x.asked.isNamed():
		r.Missing = []outcome.Missing{{Kind: "ConceptMap"}} // any concept map could contain the code
	}
	return r
}

// inMap adds the translations of the last concept map in a chain of otherMap references.
func (x *translator) inMap(c *parameters.Coding, chain []*definitions.ConceptMap) error {
	m := chain[len(chain)-1]
	if err := x.spend(len(m.Groups)); err != nil {
		return err
	}
	mapped := map[string]bool{} // target systems with a translation
	for i := range m.Groups {
		g := &m.Groups[i]
		if !x.asked.isAbout(g, c) {
			continue
		}
		said, err := x.inGroup(c, chain, g)
		if err != nil {
			return err
		}
		mapped[g.Target] = mapped[g.Target] || said
	}
	for i := range m.Groups {
		if g := &m.Groups[i]; !x.asked.Reverse && g.Unmapped.Mode != "" && !mapped[g.Target] && x.asked.isAbout(g, c) {
			if err := x.unmapped(c, chain, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// inGroup adds the translations of a group, and reports whether it has an element for the code.
func (x *translator) inGroup(c *parameters.Coding, chain []*definitions.ConceptMap, g *definitions.MapGroup) (said bool, err error) {
	for i := range g.Elements {
		e := &g.Elements[i]
		if err := x.spend(1 + len(e.Targets)); err != nil {
			return said, err
		}
		for k := range e.Targets {
			target := &e.Targets[k]
			code := e.Code
			if x.asked.Reverse {
				code = target.Code
			}
			if code == c.Code && code != "" && (x.asked.Reverse || !x.told.contradict(target)) {
				said = true
				if err := x.add(chain, g, e, target); err != nil {
					return said, err
				}
			}
		}
	}
	return said, nil
}

// spend charges for examined elements and targets.
func (x *translator) spend(n int) error {
	err := x.budget.Charge(n)
	if errors.Is(err, budget.ErrSpent) {
		return outcome.Unprocessable("too-costly", "more than %d targets are looked at; name the concept map, and translate fewer codings at once", x.library.Bounds.Gathered)
	}
	return err
}

// unmapped adds the translation of a group for codes without an element (R4 ConceptMap.group.unmapped).
func (x *translator) unmapped(c *parameters.Coding, chain []*definitions.ConceptMap, g *definitions.MapGroup) error {
	u := &g.Unmapped
	switch u.Mode {
	case "provided", "use-source-code":
		target := &definitions.MapTarget{Code: c.Code, Equivalence: cmp.Or(u.Equivalence, "equivalent")}
		return x.add(chain, g, &definitions.MapElement{Code: c.Code}, target)
	case "fixed":
		return x.add(chain, g, &definitions.MapElement{Code: c.Code}, &definitions.MapTarget{Code: u.Code, Display: u.Display, Equivalence: u.Equivalence})
	case "other-map":
		return x.otherMap(c, chain, u.OtherMap)
	}
	return nil
}

// otherMap continues with another concept map.
func (x *translator) otherMap(c *parameters.Coding, chain []*definitions.ConceptMap, reference string) error {
	other, ok := x.library.Maps.ConceptMap(reference)
	switch {
	case !ok:
		x.result.Missing = append(x.result.Missing, outcome.Missing{Kind: "ConceptMap", Canonical: reference})
		x.messages = append(x.messages, fmt.Sprintf("the concept map %s, which %s hands on to, is not here", reference, chain[len(chain)-1].Canonical()))
		return nil
	case slices.Contains(chain, other):
		var names []string
		for _, m := range append(chain, other) {
			names = append(names, m.Canonical())
		}
		return outcome.New(http.StatusUnprocessableEntity, "processing", "", "", "concept maps hand on to each other: "+strings.Join(names, " -> "))
	}
	if x.handed++; x.handed > maxHandedOn {
		return outcome.Unprocessable("too-costly", "concept maps hand on to each other more than %d times", maxHandedOn)
	}
	return x.inMap(c, append(chain, other))
}

// maxHandedOn is the maximum number of otherMap references followed per request.
const maxHandedOn = 1000

// add adds a match within the limits. A match without a target means that the concept is unmapped.
func (x *translator) add(chain []*definitions.ConceptMap, g *definitions.MapGroup, e *definitions.MapElement, target *definitions.MapTarget) error {
	if limit := x.asked.Limits.MaxEntries(); len(x.result.Matches) >= limit {
		return outcome.Unprocessable("too-costly", "there are more than %d matches; name the concept map or the target, and translate fewer codings at once", limit)
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
	case x.asked.Reverse && !x.asked.InTermsOfR5: // R4: concept is the translation, and equivalence is relative to the requested concept
		m.Equivalence, m.Concept = cmp.Or(turned[m.Equivalence], m.Equivalence), from
	case x.asked.Reverse: // R5: concept is the requested concept, and source is the translation
		m.Concept, m.Source = to, from
	default:
		m.Concept = to
	}
	for _, by := range chain {
		m.Maps = append(m.Maps, by.Canonical())
	}
	x.result.Matches = append(x.result.Matches, m)
	x.result.Found = x.result.Found || m.Equivalence != "unmatched" && m.Equivalence != "disjoint"
	x.written.Dst = x.written.Dst[:0]
	x.written.Parts("match", m.parts()...)
	if x.size += len(x.written.Dst); x.size > outcome.MaxWritten {
		return outcome.TooLong()
	}
	return nil
}

func dependenciesOf(list []definitions.MapAttribute) (dependencies []Dependency) {
	for _, a := range list {
		dependencies = append(dependencies, Dependency{Element: a.Property, Values: []parameters.Coding{{System: a.System, Code: a.Value, Display: a.Display}}})
	}
	return dependencies
}

// turned maps equivalences to their opposite direction.
var turned = map[string]string{"wider": "narrower", "narrower": "wider", "subsumes": "specializes", "specializes": "subsumes"}

// applicable returns the concept maps to search: the one with the ID, the one in the request, or the loaded ones.
func applicable(t *definitions.MapTable, q *Query) (list []*definitions.ConceptMap, err error) {
	if q.ID != "" {
		if m, ok := t.ByID(q.ID); ok && q.applies(m) {
			list = append(list, m)
		}
		return list, nil
	}
	if q.ConceptMap != nil {
		m, err := definitions.InlineConceptMap(q.ConceptMap)
		return []*definitions.ConceptMap{m}, err
	}
	for _, maps := range t.Lists {
		for _, m := range maps {
			if q.applies(m) {
				list = append(list, m)
			}
		}
	}
	return list, nil
}

// dependencies contains the elements that a translation may depend on (R4 ConceptMap/$translate, parameter dependency).
type dependencies struct {
	elements map[string]bool
	values   map[definitions.MapAttribute]bool // each value with and without its system
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

// contradict reports whether a target depends on a value (R4 ConceptMap.group.element.target.dependsOn) that differs
// from the one in the request. Elements that are not in the request are ignored.
func (d *dependencies) contradict(target *definitions.MapTarget) bool {
	for i := range target.DependsOn {
		on := &target.DependsOn[i]
		system, _ := outcome.Split(on.System)
		if d.elements[on.Property] && !d.values[definitions.MapAttribute{Property: on.Property, System: system, Value: cmp.Or(on.Value, on.Display)}] {
			return true
		}
	}
	return false
}

// request is a $translate request with the parameter names of R4 or R5.
type request struct {
	shared       *api.Parameters
	query        Query
	sourceSystem string
	version      string // version of the parameter code
}

func readRequest(c *api.Call, inputs []parameters.Input) (*request, error) {
	shared, err := c.Parameters(inputs)
	if err != nil {
		return nil, err
	}
	r := &request{shared: shared}
	given := 0
	for i := range inputs {
		isConcept, err := r.take(&inputs[i])
		if err != nil {
			return nil, err
		}
		if isConcept {
			given++
		}
	}
	if given != 1 {
		return nil, outcome.BadRequest("required", "there must be exactly one of the parameters code, coding and codeableConcept, or of those of R5: "+
			"sourceCode, sourceCoding, sourceCodeableConcept, targetCode, targetCoding and targetCodeableConcept")
	}
	r.orient()
	r.query.ID, r.query.URL, r.query.Limits = shared.ID, shared.URL, shared.Limits
	return r, nil
}

// take reads a parameter and reports whether it is a concept to translate.
func (r *request) take(in *parameters.Input) (isConcept bool, err error) {
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
		return false, r.takeMap(in)
	case "dependency":
		return false, r.takeDependency(in)
	default:
		r.takeOther(in)
		return false, nil
	}
	r.query.Reverse = r.query.Reverse || strings.HasPrefix(in.Name, "target")
	return true, err
}

// takeOther reads a parameter that selects concept maps.
func (r *request) takeOther(in *parameters.Input) {
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

func (r *request) takeMap(in *parameters.Input) error {
	switch {
	case in.Resource == nil:
		return outcome.BadRequest("invalid", "the parameter conceptMap must be a resource, which only a POST can give")
	case r.query.ConceptMap != nil:
		return outcome.BadRequest("invalid", "the parameter conceptMap may be given only once")
	}
	r.query.ConceptMap = in.Resource
	return nil
}

// orient determines the code's system and the system of translations. With R5's names, a reverse translation starts
// from the target. R4's parameter reverse does not specify whether system and targetsystem are swapped, so both are
// tried.
func (r *request) orient() {
	own, other := r.sourceSystem, r.query.TargetSystem
	switch {
	case !r.query.Reverse:
	case r.shared.HasParameter("reverse"):
		r.query.EitherWay = own != "" && other != ""
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
	r.query.InTermsOfR5 = !r.shared.HasParameter("reverse")
}

// takeDependency reads a parameter dependency with the names of R4 or R5.
func (r *request) takeDependency(in *parameters.Input) error {
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
		return outcome.BadRequest("required", "each parameter dependency needs the part element")
	}
	r.query.Dependencies = append(r.query.Dependencies, d)
	return nil
}

// dependencyValues reads the value of a dependency: a CodeableConcept with its text, a Coding, or a primitive.
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
	if err := fhirjson.ReaderOf(in.Complex).Strings(fhirjson.String{Name: "text", Into: &text}); err != nil {
		return nil, outcome.BadRequest("structure", "CodeableConcept cannot be read: %v", err)
	}
	return slices.DeleteFunc(append(codings, single, parameters.Coding{Code: text}), func(c parameters.Coding) bool { return c.Code == "" }), nil
}

// conversionFactor is the element of a product with the factor that converts a value to another unit.
const conversionFactor = "https://github.com/caddy-fhir/caddy-fhir/terminology#conversion-factor"

// conversion finds the codes that a code of a convertible code system can be converted to.
type conversion struct {
	into     *translator
	expander compose.Expander
	cs       *definitions.CodeSystem
	from     codesystem.Concept
	code     string // code of from as requested
}

// convert adds the codes that are commensurable with a coding: those of the requested value set, otherwise common codes.
// It adds nothing if the request refers to a concept map or another code system, or has no target.
func (x *translator) convert(c *parameters.Coding, cache *compose.CodeListCache) error {
	q, systems := x.asked, &x.library.Systems
	index := systems.CodeSystem(c.System, c.Version)
	scope := q.TargetScope
	if q.Reverse {
		scope = q.SourceScope
	}
	sameSystem := q.TargetSystem == c.System || q.TargetSystem == "" && scope != ""
	if !sameSystem || index == definitions.None || q.isNamed() || q.ConceptMap != nil {
		return nil
	}
	cs := systems.CodeSystems[index]
	if cs.Concepts.Converter == nil {
		return nil
	}
	vs, ok := x.library.AnyValueSet(cmp.Or(scope, cs.Common), "")
	if !ok {
		return nil
	}
	from, ok := cs.Concepts.Locate([]byte(c.Code))
	if !ok {
		x.messages = append(x.messages, cs.Concepts.Refuser.InvalidReason([]byte(c.Code)))
		return nil
	}
	expander := compose.Expander{Library: x.library, Cache: cache, Rules: new(compose.Rules), Budget: x.budget}
	return (&conversion{into: x, expander: expander, cs: cs, from: from, code: c.Code}).translate(vs)
}

// conversionSteps is the cost of a conversion per byte of the two codes.
const conversionSteps = 20

// translate adds the commensurable codes of a value set, equal ones first.
func (x *conversion) translate(vs *definitions.ValueSet) error {
	list, err := x.expander.Codes(vs)
	if err != nil {
		return err
	}
	var found []definitions.MapTarget
	for _, e := range list.Entries {
		code := x.into.library.Code(e)
		if err := x.into.spend((len(x.code) + len(code)) * conversionSteps); err != nil {
			return err
		}
		if x.into.library.Systems.List[x.into.library.SystemOf(e)].URL != x.cs.URL {
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
	group, asked := &definitions.MapGroup{Source: x.cs.URL, Target: x.cs.URL}, definitions.MapElement{Code: x.code}
	for i := range found {
		e, target := asked, found[i]
		if x.into.asked.Reverse { // the found code is on the source side
			e.Code, e.Display, target.Code, target.Display = target.Code, target.Display, x.code, ""
		}
		if err := x.into.add(nil, group, &e, &target); err != nil {
			return err
		}
	}
	return nil
}

// target returns another code with its relationship to the requested one, or false if they are not commensurable.
func (x *conversion) target(other codesystem.Concept) (t definitions.MapTarget, ok bool) {
	from, to := x.from, other
	if x.into.asked.Reverse {
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
