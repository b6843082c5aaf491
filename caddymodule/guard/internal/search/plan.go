package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Handler answers the searches of one request.
type Handler struct {
	Server               *fhirserver.Server // sends requests to the FHIR server
	Judge                *judge.Judge       // judges responses from the FHIR server
	Addresses            message.Addresses  // public addresses of the FHIR API
	Pages                paging.Pages       // seals page links
	Parameters           searchparam.Set    // supported search parameters
	TypeRules            access.TypeRules   // rules for types outside of compartments
	SupportsCompartments bool               // whether the FHIR server supports searches by Patient/id/Type
	MaxRequests          int                // maximum number of requests to the FHIR server per client request
	MaxResponseBytes     int64              // maximum size in bytes of a judged response
}

// searchPlan is the immutable plan of a search.
type searchPlan struct {
	call        message.Call            // the client's call without ignored parameters
	interaction interaction.Interaction // interaction of that call
	branches    []branch
	query       query
	response    responseOptions
	inclusions  inclusionPlan
	disclosure  disclosure
}

// query contains the parameters that every branch sends to the FHIR server.
type query struct {
	method           string            // the client's method: a search by POST sends its parameters in a body
	clientParameters []smart.Parameter // the client's parameters, which messages from the FHIR server may repeat
	parameters       []smart.Parameter // parameters for the FHIR server
	order            sortOrder         // order in which results are merged
	hasResolvedChain bool              // the gateway resolved a chain by additional searches
	matchesNothing   bool              // a chain matched nothing, so the search matches nothing
}

// sentTerms returns the client's parameters, which messages from the FHIR server may repeat.
func (q query) sentTerms() message.SentTerms {
	return message.SentTerms{}.AddParameters(q.clientParameters)
}

// responseOptions describes the response requested by the client.
type responseOptions struct {
	effective     []smart.Parameter // the client's parameters that take effect
	ignored       []string          // names of unknown parameters, if Prefer is handling=lenient
	count         int               // value of _count; 0 if absent
	onlyTotal     bool              // _summary=count or _count=0
	accurateTotal bool              // _total=accurate
}

// inclusionPlan determines which resources are included by _include and _revinclude.
type inclusionPlan struct {
	kinds           includes // kinds of include parameters in the search
	referringChains []chain  // references to matches that the gateway resolves by searches
}

// disclosure determines how much of the FHIR server's response may be returned unchanged.
type disclosure struct {
	isJudged    bool // entries are judged individually
	hasPolicies bool // policies judge each match, so the FHIR server's total would reveal denied matches
	isCountable bool // the FHIR server finds only visible matches, so its total reveals nothing
}

// mayHide reports whether the FHIR server may find matches that are withheld because policies deny them or they belong to other
// patients. A link to a page of only withheld matches would reveal them, so pages look ahead.
func (d disclosure) mayHide() bool { return d.isJudged && (d.hasPolicies || !d.isCountable) }

// mayCount reports whether the FHIR server's number of matches may be returned.
func (d disclosure) mayCount() bool { return !d.hasPolicies && (!d.isJudged || d.isCountable) }

// sortOrder is the client's _sort.
type sortOrder []sortKey

// sortKey is a key of _sort.
type sortKey struct {
	name       string
	descending bool
}

// scopeCoverage determines which of the searched resources the scopes cover.
type scopeCoverage uint8

const (
	// coversSome: the scopes cover only a part of the resources.
	coversSome scopeCoverage = iota
	// coversTypes: the scopes cover all resources of the types involved, but not of every type.
	coversTypes
	// coversAll: the scopes cover all resources of all types.
	coversAll
)

// searchRules decide which parameters are sent to the FHIR server. Unless the scopes cover all resources involved, a parameter
// must not reveal uncovered ones by the matches, their number or their order.
//
// R4's parameters of a type compare only elements of the resource itself, which the client may read anyway, so they are sent.
type searchRules struct {
	handler       *Handler
	branches      []branch
	resourceType  string   // the searched type; empty or [smart.AnyType] for several types
	types         []string // types of the branches
	coverage      scopeCoverage
	hasTypeInPath bool // the path contains the single type
	includes      includes
}

// grantCache caches grants by type and permission.
type grantCache struct {
	judge   *judge.Judge
	entries map[grantKey][]access.Grant
}

// grantKey is the key of a grantCache.
type grantKey struct {
	resourceType string
	permission   smart.Permission
}

func (g *grantCache) get(resourceType string, p smart.Permission) []access.Grant {
	key := grantKey{resourceType, p}
	all, ok := g.entries[key]
	if !ok {
		all = g.judge.Rights().GrantsFor(resourceType, p)
		if g.entries == nil {
			g.entries = map[grantKey][]access.Grant{}
		}
		g.entries[key] = all
	}
	return all
}

const (
	// DefaultCount is the number of matches on a judged page if _count is missing. maxCount is the maximum.
	DefaultCount = 50
	maxCount     = 1000
	// minMergedPage is the minimum page size of merged branches, because other branches may have found many of the same
	// matches.
	minMergedPage = 20
)

// pageSize returns the number of matches on a page; 0 means the FHIR server's page size, for pages that are not judged.
func pageSize(isJudged bool, count int) int {
	if !isJudged {
		return 0
	}
	return min(cmp.Or(count, DefaultCount), maxCount)
}

// call returns the search request of a branch with a page size; 0 lets the FHIR server decide. The parameters of a search by
// POST are sent in a body, which keeps them out of logs.
func (b branch) call(method string, parameters []smart.Parameter, size int) message.Call {
	path := b.resourceType
	switch {
	case b.pathPatient != "":
		path = "Patient/" + b.pathPatient + "/" + path
	case b.requestedCompartment != (interaction.Reference{}):
		path = b.requestedCompartment.String() + "/" + path
	}
	if size > 0 {
		parameters = append(slices.Clip(parameters), smart.Parameter{Name: "_count", Value: strconv.Itoa(size)})
	}
	text := smart.EncodeParameters(parameters)
	if method != http.MethodPost {
		return message.NewGet(path, text)
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	return message.Call{Method: http.MethodPost, Path: strings.TrimPrefix(path+"/_search", "/"), Header: header, Body: []byte(text)}
}

// searchesAllTypes reports whether the client's search specifies no types. The FHIR server need not support all of them.
func searchesAllTypes(i interaction.Interaction) bool {
	return (i.Type == "" || i.Type == smart.AnyType) &&
		!slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool { return p.Name == "_type" })
}

// branch is a search with parameters that confine the FHIR server to the resources that some grants cover. If no single search
// can express the grants, the results of several branches are merged.
type branch struct {
	resourceType         string
	pathPatient          string                // patient if the path selects a Patient compartment; may be empty
	confinedToPatient    string                // patient if the search is confined to a Patient compartment; may be empty
	requestedCompartment interaction.Reference // compartment requested by the client, if the path selects it
	confiningParameters  []smart.Parameter     // parameters that are added to the client's
	isFullyCovered       bool                  // the scopes cover every possible match
	dependsOnPolicies    bool                  // policies decide which of its matches are visible
}

// chain is the first link of a chained parameter or _has, and the condition on the linked resources.
type chain struct {
	parameter searchparam.Parameter // reference parameter
	types     []string              // types of the linked resources
	condition smart.Parameter       // condition on the linked resources
	isReverse bool                  // _has: the linked resources refer to the searched ones
}

// includes contains the kinds of include parameters in a search.
type includes struct {
	include    bool // _include: resources that a match refers to
	revinclude bool // _revinclude: resources that refer to a match
	iterate    bool // with the modifier :iterate or :recurse
}

// includesOf returns the kinds of include parameters in a search.
func includesOf(parameters []smart.Parameter) (all includes) {
	for _, p := range parameters {
		name, modifier, _ := strings.Cut(p.Name, ":")
		switch name {
		case "_include":
			all.include = true
		case "_revinclude":
			all.revinclude = true
		default:
			continue
		}
		all.iterate = all.iterate || modifier != ""
	}
	return all
}

// isBefore reports whether entry a precedes entry b. Entries without a value come last, as on HAPI.
func (o sortOrder) isBefore(parameters searchparam.Set, a, b *message.Entry) bool {
	for i, key := range o {
		x, y := o.rank(parameters, a, i), o.rank(parameters, b, i)
		switch {
		case x.HasValue != y.HasValue:
			return x.HasValue
		case !x.HasValue:
			continue
		}
		if order := x.Compare(y); order != 0 {
			return order < 0 != key.descending
		}
	}
	return false
}

// rank returns the rank of an entry by a sort key. It is computed only once.
func (o sortOrder) rank(parameters searchparam.Set, e *message.Entry, key int) searchparam.Rank {
	if e.Ranks == nil {
		e.Ranks = make([]searchparam.Rank, len(o))
		for i, k := range o {
			if p, ok := parameters.Lookup(e.ParsedResource.Type, k.name); ok {
				e.Ranks[i] = p.Rank(e.ParsedResource, k.descending)
			}
		}
	}
	return e.Ranks[key]
}

const (
	typicalEntries   = 50   // typical number of entries per page
	maxPooledEntries = 1000 // maximum capacity of a pooled list
)

// entryLists is a pool of entry lists of limited capacity.
var entryLists = sync.Pool{New: func() any { return new([]message.Entry) }}

// newEntryList returns an empty list with capacity for the entries of a typical page.
func newEntryList() []message.Entry {
	return slices.Grow(*entryLists.Get().(*[]message.Entry), typicalEntries)
}

func newPlan(ctx context.Context, x *Handler, c message.Call, i interaction.Interaction) (searchPlan, error) {
	branches, err := planBranches(x, i)
	if err != nil {
		return searchPlan{}, err
	}
	rules := newRules(x, i, branches)
	read, err := rules.apply(ctx, i.Parameters, message.IsLenient(c.Header))
	if err != nil {
		return searchPlan{}, err
	}
	if maxRequests := x.maxPageRequests(); len(read.order) > 0 && len(branches) > maxRequests {
		return searchPlan{}, message.TooCostly("The sorted search needs %d requests to the FHIR server per page, but only %d are allowed: specify fewer types with _type.", len(branches), maxRequests)
	}
	c, i = withoutIgnored(c, i, read.response.ignored)
	return searchPlan{
		call: c, interaction: i, branches: branches, response: read.response,
		query:      query{c.Method, i.Parameters, read.forwarded, read.order, read.hasResolvedChain, read.matchesNothing},
		inclusions: inclusionPlan{rules.includes, read.referringChains},
		disclosure: disclosure{
			isJudged:    rules.coverage != coversAll || len(branches) > 1,
			hasPolicies: x.Judge.MayDeny() || slices.ContainsFunc(branches, func(b branch) bool { return b.dependsOnPolicies }),
			isCountable: !slices.ContainsFunc(branches, func(b branch) bool { return !b.isFullyCovered && !x.TypeRules.HasExactTotal(b.resourceType) }),
		},
	}, nil
}

func newRules(x *Handler, i interaction.Interaction, branches []branch) searchRules {
	rules := searchRules{handler: x, branches: branches, resourceType: i.Type, hasTypeInPath: i.Type != "" && i.Type != smart.AnyType, includes: includesOf(i.Parameters)}
	if i.Kind == interaction.SystemSearch {
		if types, _ := parseTypes(i.Parameters); len(types) == 1 {
			rules.resourceType = types[0]
		}
	}
	if rules.types = []string{rules.resourceType}; !interaction.IsType(rules.resourceType) {
		rules.types = branchTypes(branches)
	}
	switch { // if policies judge each match, no type is covered completely
	case x.Judge.Rights().IsUnrestricted(smart.AnyType, smart.Search):
		rules.coverage = coversAll
	case len(branches) > 0 && !slices.ContainsFunc(branches, func(b branch) bool { return !b.isFullyCovered }):
		rules.coverage = coversTypes
	}
	return rules
}

type parameterEffects struct {
	response         responseOptions
	forwarded        []smart.Parameter // parameters sent to the FHIR server
	order            sortOrder
	referringChains  []chain
	hasResolvedChain bool // a chain was resolved
	matchesNothing   bool // a chain matched nothing
}

// apply handles the parameters that take effect in the gateway and rejects those that would reveal too much.
func (r searchRules) apply(ctx context.Context, parameters []smart.Parameter, lenient bool) (all parameterEffects, err error) {
	if err := paging.RejectPagingLinks(parameters); err != nil {
		return all, err
	}
	for _, p := range parameters {
		one, inSelfLink, err := r.parameterEffects(ctx, p)
		if errors.Is(err, errUnknownParameter) && lenient && isDroppable(p.Name) {
			all.response.ignored = append(all.response.ignored, p.Name)
			continue
		}
		if err != nil {
			return all, err
		}
		all.add(one)
		if inSelfLink {
			all.response.apply(p)
			all.response.effective = append(all.response.effective, p)
		}
	}
	return all, nil
}

func (all *parameterEffects) add(one parameterEffects) {
	all.forwarded = append(all.forwarded, one.forwarded...)
	all.order = append(all.order, one.order...)
	all.referringChains = append(all.referringChains, one.referringChains...)
	all.hasResolvedChain = all.hasResolvedChain || one.hasResolvedChain
	all.matchesNothing = all.matchesNothing || one.matchesNothing
}

// apply applies a supported parameter that affects the response.
func (r *responseOptions) apply(p smart.Parameter) {
	switch p.Name {
	case "_count":
		r.count, _ = strconv.Atoi(p.Value) // the search rules have validated it
		r.onlyTotal = r.onlyTotal || r.count == 0
	case "_summary":
		r.onlyTotal = r.onlyTotal || p.Value == "count"
	case "_total":
		r.accurateTotal = p.Value == "accurate"
	}
}

// isDroppable reports whether an unknown parameter can be ignored without harm. Chains and _sort cannot: their parts are
// checked individually.
func isDroppable(name string) bool {
	return name != "_sort" && !strings.HasPrefix(name, "_has") && !strings.Contains(name, ".")
}

// withoutIgnored removes the ignored parameters from the client's call, so that page links do not repeat them.
func withoutIgnored(c message.Call, i interaction.Interaction, ignored []string) (message.Call, interaction.Interaction) {
	if len(ignored) == 0 {
		return c, i
	}
	i.Parameters = slices.DeleteFunc(slices.Clone(i.Parameters), func(p smart.Parameter) bool { return slices.Contains(ignored, p.Name) })
	if text := smart.EncodeParameters(i.Parameters); c.Method == http.MethodPost {
		c.Query, c.Body = "", []byte(text)
	} else {
		c.Query = text
	}
	return c, i
}

// parameterEffects returns the effects of a parameter. inSelfLink reports whether the self link must contain the parameter.
func (r searchRules) parameterEffects(ctx context.Context, p smart.Parameter) (one parameterEffects, inSelfLink bool, err error) {
	as := parameterEffects{forwarded: []smart.Parameter{p}}
	switch p.Name {
	case "_format", "_pretty":
		return parameterEffects{}, false, nil
	case "_count":
		if n, err := strconv.Atoi(p.Value); err != nil || n < 0 {
			return parameterEffects{}, false, message.InvalidRequest(message.ErrInvalidSearch, "_count must be a nonnegative integer.")
		}
		return parameterEffects{}, true, nil
	case "_summary":
		if p.Value == "count" {
			return parameterEffects{}, true, nil
		}
	case "_type":
		if r.coverage == coversAll && r.resourceType == "" {
			return as, true, nil
		}
		return parameterEffects{}, true, r.checkType()
	case "_total":
		if len(r.branches) > 1 {
			return parameterEffects{}, true, nil
		}
		return as, true, nil
	case "_sort":
		as.order, err = r.parseSort(p.Value)
		return as, true, err
	}
	return r.filterEffects(ctx, p)
}

// checkType rejects _type if the path of the search already specifies the type.
func (r searchRules) checkType() error {
	if r.hasTypeInPath {
		return message.InvalidRequest(message.ErrInvalidSearch, "_type is only allowed in searches across several types.")
	}
	return nil
}

// filterEffects returns the effects of a parameter that selects matches or parts of them.
func (r searchRules) filterEffects(ctx context.Context, p smart.Parameter) (one parameterEffects, inSelfLink bool, err error) {
	as := parameterEffects{forwarded: []smart.Parameter{p}}
	name, modifier, _ := strings.Cut(p.Name, ":")
	switch {
	case len(r.branches) > 1 && (name == "_summary" || name == "_elements"):
		return parameterEffects{}, false, nil // merging branches requires elements that would be missing
	case r.coverage == coversAll:
		return as, true, nil
	case name == "_include":
		as.forwarded, err = r.expandInclude(p, modifier)
		return as, true, err
	case name == "_revinclude":
		as.forwarded, as.referringChains, err = r.expandRevinclude(p, modifier)
		return as, true, err
	case name == "_summary", name == "_elements":
		// Judging requires all elements of a resource.
		if r.coverage == coversSome || r.includes != (includes{}) || modifier != "" {
			return parameterEffects{}, false, nil
		}
		return as, true, nil
	case name == "_contained" && p.Value == "false":
		return parameterEffects{}, false, nil
	case leakyParameters[name] != "":
		return parameterEffects{}, false, message.Forbidden(message.ErrDisclosure, "%s is not allowed with these scopes: %s.", name, leakyParameters[name])
	case name == "_has", strings.Contains(p.Name, "."):
		if !interaction.IsType(r.resourceType) {
			return parameterEffects{}, false, message.InvalidRequest(message.ErrInvalidSearch, "A search with a chain or _has must search a single type: specify it in the path or with _type.")
		}
		as, err = r.resolveChain(ctx, p)
		return as, true, err
	}
	for _, t := range r.types {
		if err := checkPlainParameter(r.handler.Parameters, t, name, modifier, p.Value); err != nil {
			return parameterEffects{}, false, err
		}
	}
	return as, true, nil
}

// parseSort parses _sort. It returns an error for keys other than elements of the resource itself. The order is empty for a
// single branch, because the FHIR server sorts it.
func (r searchRules) parseSort(value string) (by sortOrder, err error) {
	if r.coverage == coversAll && len(r.branches) == 1 {
		return nil, nil
	}
	for name := range strings.SplitSeq(value, ",") {
		name, descending := strings.CutPrefix(name, "-")
		if err := r.checkSort(name); err != nil {
			return nil, err
		}
		if len(r.branches) > 1 {
			by = append(by, sortKey{name, descending})
		}
	}
	return by, nil
}

// checkSort rejects sort keys that are unknown or may depend on other resources, such as references. If several branches are
// merged, it also rejects keys that the gateway cannot evaluate.
func (r searchRules) checkSort(name string) error {
	for _, b := range r.branches {
		p, ok := r.handler.Parameters.Lookup(b.resourceType, name)
		switch {
		case !ok && leakyParameters[name] == "" && !strings.Contains(name, "."):
			return unknownParameter(b.resourceType, name)
		case !isElementSortKey(r.handler.Parameters, b.resourceType, name):
			return message.Forbidden(message.ErrDisclosure, "_sort by %s is not allowed with these scopes: the order may depend on other resources.", strconv.Quote(name))
		case len(r.branches) > 1 && !p.CanSort():
			return message.Forbidden(message.ErrTooCostly, "_sort by %s is not supported with these scopes, because the results of several searches are merged.", strconv.Quote(name))
		}
	}
	return nil
}

// leakyParameters maps the parameters that reveal other resources to the reason.
var leakyParameters = map[string]string{
	"_filter":        "it can query any resource",
	"_list":          "it reveals the content of a List",
	"_query":         "the named query can search any resource",
	"_graph":         "the named graph can return any resource",
	"_text":          "the order of the matches reveals how common words are in all records",
	"_content":       "the order of the matches reveals how common words are in all records",
	"_score":         "the score reveals how common words are in all records",
	"_contained":     "contained resources cannot be checked on their own",
	"_containedType": "contained resources cannot be checked on their own",
}

// plainModifiers are the modifiers that compare only elements of the resource itself, by kind of parameter. :missing is also
// plain, for each kind.
var plainModifiers = map[searchparam.Kind][]string{
	searchparam.String:    {"exact", "contains", "nickname"},
	searchparam.Token:     {"not", "text", "of-type", "above", "below", "in", "not-in"},
	searchparam.URI:       {"above", "below"},
	searchparam.Reference: {"identifier"},
}

// checkPlainParameter rejects a parameter that compares more than the elements of the resource itself. Terminology modifiers
// are permitted because value sets contain no patient data, but only with a URL: an id could select any resource.
func checkPlainParameter(supported searchparam.Set, resourceType, name, modifier, value string) error {
	parameter, ok := supported.Lookup(resourceType, name)
	switch {
	case !ok:
		return unknownParameter(resourceType, name)
	case name == "_id" && modifier != "":
		// For _id:not, HAPI finds nothing if no resource has the id and everything otherwise, which reveals existing ids.
		return message.Forbidden(message.ErrDisclosure, "With these scopes, _id must not have a modifier: the result could reveal existing ids.")
	case modifier == "", modifier == "missing":
		return nil
	case parameter.Kind == searchparam.Reference && interaction.IsType(modifier):
		return nil
	case !slices.Contains(plainModifiers[parameter.Kind], modifier):
		return message.Forbidden(message.ErrDisclosure, "The modifier :%s of %s is not allowed with these scopes: the result may depend on other resources.", modifier, name)
	case (modifier == "in" || modifier == "not-in") && !strings.Contains(value, ":"):
		return message.Forbidden(message.ErrDisclosure, "With these scopes, the modifier :%s requires the URL of a value set.", modifier)
	}
	return nil
}

var errUnknownParameter = fmt.Errorf("%w: unknown search parameter", message.ErrInvalidSearch)

// unknownParameter returns the error for a parameter that only the FHIR server may be able to interpret.
func unknownParameter(resourceType, name string) error {
	return message.InvalidRequest(errUnknownParameter, "The search parameter %s is not supported: FHIR R4 does not define it for %s, and neither does this site.",
		strconv.Quote(name), cmp.Or(resourceType, "all types"))
}

// isElementSortKey reports whether a sort key is an element of the resource itself.
func isElementSortKey(supported searchparam.Set, resourceType, name string) bool {
	p, ok := supported.Lookup(resourceType, name)
	return ok && p.Kind != searchparam.Reference && leakyParameters[name] == ""
}

// sortsByElementsOnly reports whether all keys of _sort are elements of the resource itself.
func sortsByElementsOnly(supported searchparam.Set, resourceType, value string) bool {
	for key := range strings.SplitSeq(value, ",") {
		if !isElementSortKey(supported, resourceType, strings.TrimPrefix(key, "-")) {
			return false
		}
	}
	return true
}

// IsSingleTypeSearch reports whether a search compares only elements of its own type.
func (x *Handler) IsSingleTypeSearch(i interaction.Interaction) bool {
	return i.Type != smart.AnyType && !slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool {
		name, modifier, _ := strings.Cut(p.Name, ":")
		switch {
		case harmlessParameters[p.Name]:
			return false
		case p.Name == "_sort":
			return !sortsByElementsOnly(x.Parameters, i.Type, p.Value)
		}
		return leakyParameters[name] != "" || checkPlainParameter(x.Parameters, i.Type, name, modifier, p.Value) != nil
	})
}

// harmlessParameters are the parameters that affect only the format or size of a response and reveal no other type.
var harmlessParameters = map[string]bool{
	"_count": true, "_summary": true, "_elements": true, "_total": true, "_format": true, "_pretty": true,
}
