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

// Searches are the searches that one request needs.
type Searches struct {
	Server         *fhirserver.Server // asks the FHIR server
	Judge          *judge.Judge       // judges what it answers
	At             message.Addresses  // names what it holds as clients know it
	Pages          paging.Pages       // seals links to pages
	Parameters     searchparam.Set    // are the search parameters
	Shared         access.Shared      // are the rules of types outside of the compartment
	InCompartments bool               // the server finds a patient's resources by Patient/id/Type
	Requests       int                // to the server that the request may cause
	Limit          int64              // size in bytes up to which an answer is judged
}

// plan is how a search is answered. Nothing changes it once it is made.
type plan struct {
	call        message.Call            // the client's, without ignored parameters
	interaction interaction.Interaction // likewise
	branches    []branch
	query       query
	response    response
	along       along
	disclosure  disclosure
}

// query has the parameters sent to the FHIR server with every branch.
type query struct {
	method     string            // the client's: a search that came in a body goes on in a body
	sent       []smart.Parameter // by the client, which the FHIR server's messages may repeat
	parameters []smart.Parameter // that go to the FHIR server
	order      order             // of the branches' results
	chained    bool              // a chain was looked up by searches of our own
	nothing    bool              // a chain has found nothing, so neither does the search
}

// said holds the client's parameters, which the FHIR server may repeat.
func (q query) said() message.Said { return message.Said{}.Parameters(q.sent) }

// response describes the response that the client requested.
type response struct {
	heeded    []smart.Parameter // parameters of the client that take effect
	ignored   []string          // names of unknown parameters, with Prefer: handling=lenient
	count     int               // _count; 0 if the client did not say
	onlyTotal bool              // _summary=count or _count=0
	accurate  bool              // _total=accurate
}

// along selects included and revincluded resources.
type along struct {
	includes  includes // how entries other than matches may come
	referring []chain  // what comes along because it refers to matches, found by searches of our own
}

// disclosure is how far the FHIR server's response may be shown as it is.
type disclosure struct {
	judged    bool // entries are looked at one by one
	ruled     bool // policies judge each match, so the server's total would reveal denied matches
	countable bool // the FHIR server finds just what may be seen; of some types it finds more, which a number would include
}

// mayHide reports whether the FHIR server may find matches that are withheld: those that policies deny, or records of
// other patients. A link to a page that has only these would reveal them, so each page ends with a look ahead.
func (d disclosure) mayHide() bool { return d.judged && (d.ruled || !d.countable) }

// mayCount reports whether the number of matches that the FHIR server finds may be shown.
func (d disclosure) mayCount() bool { return !d.ruled && (!d.judged || d.countable) }

// order is the client's _sort.
type order []sortKey

// sortKey is one of the parameters of _sort.
type sortKey struct {
	name       string
	descending bool
}

// trust is how much of a search is left to the FHIR server.
type trust uint8

const (
	// bound: some scope is about a part of what could be found.
	bound trust = iota
	// whole: the scopes are about all resources of the types, but not about all types.
	whole
	// open: the scopes are about all resources of all types.
	open
)

// searchRules say which parameters of a search go on to the FHIR server. Unless it is open, none may that could tell of
// resources that are not covered: by what is found, how much, or in which order.
//
// R4's parameters of a type compare what is in the resource itself, which the client may see anyway, so they go on.
type searchRules struct {
	x            *Searches
	branches     []branch
	resourceType string   // that the search is about; empty or [smart.AnyType] if it is about several
	types        []string // that the branches are about
	trust        trust
	onePath      bool // the path names the one type
	includes     includes
}

// grants are the rights' grants, each looked up once.
type grants struct {
	judge *judge.Judge
	found map[granted][]access.Grant
}

// granted is what grants are looked up by.
type granted struct {
	resourceType string
	permission   smart.Permission
}

// of are the grants for a type.
func (g *grants) of(resourceType string, p smart.Permission) []access.Grant {
	key := granted{resourceType, p}
	all, ok := g.found[key]
	if !ok {
		all = g.judge.Rights().For(resourceType, p)
		if g.found == nil {
			g.found = map[granted][]access.Grant{}
		}
		g.found[key] = all
	}
	return all
}

const (
	// DefaultCount is how many matches a page has that is judged, if the client does not say; maxCount is the most.
	DefaultCount = 50
	maxCount     = 1000
	// minMerged is how long the pages of branches are at least, many of whose matches other branches may have found.
	minMerged = 20
)

// pageSize is how many matches a page has. 0 leaves it to the FHIR server: a page that is not judged is as long as the server's.
func pageSize(judged bool, count int) int {
	if !judged {
		return 0
	}
	return min(cmp.Or(count, DefaultCount), maxCount)
}

// call is a search where a branch searches, for so many matches, or as many as the FHIR server likes. One that came in a
// body goes on in a body, which keeps it out of logs.
func (b branch) call(method string, parameters []smart.Parameter, size int) message.Call {
	path := b.resourceType
	switch {
	case b.patient != "":
		path = "Patient/" + b.patient + "/" + path
	case b.within != (interaction.Reference{}):
		path = b.within.String() + "/" + path
	}
	if size > 0 {
		parameters = append(slices.Clip(parameters), smart.Parameter{Name: "_count", Value: strconv.Itoa(size)})
	}
	text := smart.EncodeParameters(parameters)
	if method != http.MethodPost {
		return message.Get(path, text)
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	return message.Call{Method: http.MethodPost, Path: strings.TrimPrefix(path+"/_search", "/"), Header: header, Body: []byte(text)}
}

// isOverAll reports whether the client has named no types, so that the FHIR server need not have them all.
func isOverAll(i interaction.Interaction) bool {
	return (i.Type == "" || i.Type == smart.AnyType) &&
		!slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool { return p.Name == "_type" })
}

// branch is a search that the FHIR server confines to what some grants cover. A search that no single one can confine
// becomes several, whose results are joined.
type branch struct {
	resourceType string
	patient      string                // the compartment to which the path confines; empty for none
	member       string                // the patient to whose compartment path or parameters confine; empty for none
	within       interaction.Reference // the compartment that the client asked for, if the path is to say so
	confining    []smart.Parameter     // come on top of the client's
	whole        bool                  // all that it could find is covered
	byRule       bool                  // policies decide whether its matches may be seen
}

// chain is the first link of a parameter that looks at other resources, and what it asks of them.
type chain struct {
	by      searchparam.Parameter // the reference
	types   []string              // that are looked at
	rest    smart.Parameter       // what is asked of them
	reverse bool                  // _has: they refer to what is searched for
}

// includes are the ways by which other entries may come along with matches.
type includes struct {
	include    bool // named by a match
	revinclude bool // naming a match
	iterate    bool // and so on from there
}

// includesOf are the includes of a search.
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

// less reports whether an entry comes before another one. What has no value comes last, as on HAPI's server.
func (o order) less(parameters searchparam.Set, a, b *message.Entry) bool {
	for i, key := range o {
		x, y := o.rank(parameters, a, i), o.rank(parameters, b, i)
		switch {
		case x.Has != y.Has:
			return x.Has
		case !x.Has:
			continue
		}
		if order := x.Compare(y); order != 0 {
			return order < 0 != key.descending
		}
	}
	return false
}

// rank is where an entry stands by a key, worked out once.
func (o order) rank(parameters searchparam.Set, e *message.Entry, key int) searchparam.Rank {
	if e.Ranks == nil {
		e.Ranks = make([]searchparam.Rank, len(o))
		for i, k := range o {
			if p, ok := parameters.Lookup(e.Parsed.Type, k.name); ok {
				e.Ranks[i] = p.Rank(e.Parsed, k.descending)
			}
		}
	}
	return e.Ranks[key]
}

const (
	usualEntries = 50   // of a page
	mostEntries  = 1000 // of a list that is kept
)

// entryLists are lists of entries, of which a few are kept, and no long ones.
var entryLists = sync.Pool{New: func() any { return new([]message.Entry) }}

// newEntries is an empty list with room for the entries of the usual page.
func newEntries() []message.Entry {
	return slices.Grow(*entryLists.Get().(*[]message.Entry), usualEntries)
}

// newPlan plans a search.
func newPlan(ctx context.Context, x *Searches, c message.Call, i interaction.Interaction) (plan, error) {
	branches, err := branchesOf(x, i)
	if err != nil {
		return plan{}, err
	}
	rules := newRules(x, i, branches)
	read, err := rules.apply(ctx, i.Parameters, message.IsLenient(c.Header))
	if err != nil {
		return plan{}, err
	}
	if most := x.mostRequests(); len(read.order) > 0 && len(branches) > most {
		return plan{}, message.TooCostly("The sorted search needs %d requests to the FHIR server for each page, and %d are allowed: name fewer types with _type.", len(branches), most)
	}
	c, i = withoutIgnored(c, i, read.response.ignored)
	return plan{
		call: c, interaction: i, branches: branches, response: read.response,
		query: query{c.Method, i.Parameters, read.passed, read.order, read.chained, read.nothing},
		along: along{rules.includes, read.referring},
		disclosure: disclosure{
			judged:    rules.trust != open || len(branches) > 1,
			ruled:     x.Judge.MayDeny() || slices.ContainsFunc(branches, func(b branch) bool { return b.byRule }),
			countable: !slices.ContainsFunc(branches, func(b branch) bool { return !b.whole && !x.Shared.IsCounted(b.resourceType) }),
		},
	}, nil
}

// newRules are the rules for a search.
func newRules(x *Searches, i interaction.Interaction, branches []branch) searchRules {
	rules := searchRules{x: x, branches: branches, resourceType: i.Type, onePath: i.Type != "" && i.Type != smart.AnyType, includes: includesOf(i.Parameters)}
	if i.Kind == interaction.SystemSearch {
		if types, _ := typesOf(i.Parameters); len(types) == 1 {
			rules.resourceType = types[0]
		}
	}
	if rules.types = []string{rules.resourceType}; !interaction.IsType(rules.resourceType) {
		rules.types = typesIn(branches)
	}
	switch { // nothing is covered whole where rules judge each match
	case x.Judge.Rights().Whole(smart.AnyType, smart.Search):
		rules.trust = open
	case len(branches) > 0 && !slices.ContainsFunc(branches, func(b branch) bool { return !b.whole }):
		rules.trust = whole
	}
	return rules
}

// effects are what parameters come to.
type effects struct {
	response  response
	passed    []smart.Parameter // go to the FHIR server
	order     order
	referring []chain
	chained   bool // a chain was looked up
	nothing   bool // a chain has found nothing
}

// apply takes out the parameters that are done here, and refuses those that tell too much.
func (r searchRules) apply(ctx context.Context, parameters []smart.Parameter, lenient bool) (all effects, err error) {
	if err := paging.RefusePaging(parameters); err != nil {
		return all, err
	}
	for _, p := range parameters {
		one, heeded, err := r.one(ctx, p)
		if errors.Is(err, errUnknown) && lenient && isDroppable(p.Name) {
			all.response.ignored = append(all.response.ignored, p.Name)
			continue
		}
		if err != nil {
			return all, err
		}
		all.add(one)
		if heeded {
			all.response.read(p)
			all.response.heeded = append(all.response.heeded, p)
		}
	}
	return all, nil
}

// add adds the effects of a parameter.
func (all *effects) add(one effects) {
	all.passed = append(all.passed, one.passed...)
	all.order = append(all.order, one.order...)
	all.referring = append(all.referring, one.referring...)
	all.chained = all.chained || one.chained
	all.nothing = all.nothing || one.nothing
}

// read reads a supported parameter about the response.
func (r *response) read(p smart.Parameter) {
	switch p.Name {
	case "_count":
		r.count, _ = strconv.Atoi(p.Value) // a number, as the rules have checked
		r.onlyTotal = r.onlyTotal || r.count == 0
	case "_summary":
		r.onlyTotal = r.onlyTotal || p.Value == "count"
	case "_total":
		r.accurate = p.Value == "accurate"
	}
}

// isDroppable reports whether a search without a parameter finds no more than what may be seen, in any order. A chain is not
// unknown as a whole, and an order is checked by its keys.
func isDroppable(name string) bool {
	return name != "_sort" && !strings.HasPrefix(name, "_has") && !strings.Contains(name, ".")
}

// withoutIgnored removes the ignored parameters from the client's call, so that links to further pages don't repeat them.
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

// one is what a parameter comes to, and whether it is heeded.
func (r searchRules) one(ctx context.Context, p smart.Parameter) (one effects, heeded bool, err error) {
	as := effects{passed: []smart.Parameter{p}}
	switch p.Name {
	case "_format", "_pretty":
		return effects{}, false, nil
	case "_count":
		if n, err := strconv.Atoi(p.Value); err != nil || n < 0 {
			return effects{}, false, message.Invalid(message.ErrSearch, "_count is no number.")
		}
		return effects{}, true, nil
	case "_summary":
		if p.Value == "count" {
			return effects{}, true, nil
		}
	case "_type":
		if r.trust == open && r.resourceType == "" {
			return as, true, nil
		}
		return effects{}, true, r.checkType()
	case "_total":
		if len(r.branches) > 1 {
			return effects{}, true, nil
		}
		return as, true, nil
	case "_sort":
		as.order, err = r.sort(p.Value)
		return as, true, err
	}
	return r.confined(ctx, p)
}

// checkType refuses _type where it is not for: a search by type has its type in the path.
func (r searchRules) checkType() error {
	if r.onePath {
		return message.Invalid(message.ErrSearch, "_type is for searches over several types.")
	}
	return nil
}

// confined is what a parameter comes to that says what is found, or how much of it is answered.
func (r searchRules) confined(ctx context.Context, p smart.Parameter) (one effects, heeded bool, err error) {
	as := effects{passed: []smart.Parameter{p}}
	name, modifier, _ := strings.Cut(p.Name, ":")
	switch {
	case len(r.branches) > 1 && (name == "_summary" || name == "_elements"):
		return effects{}, false, nil // what two branches find is known by elements that would be missing
	case r.trust == open:
		return as, true, nil
	case name == "_include":
		as.passed, err = r.include(p, modifier)
		return as, true, err
	case name == "_revinclude":
		as.passed, as.referring, err = r.revinclude(p, modifier)
		return as, true, err
	case name == "_summary", name == "_elements":
		// An answer without all its elements cannot be judged.
		if r.trust == bound || r.includes != (includes{}) || modifier != "" {
			return effects{}, false, nil
		}
		return as, true, nil
	case name == "_contained" && p.Value == "false":
		return effects{}, false, nil
	case telling[name] != "":
		return effects{}, false, message.Forbidden(message.ErrOracle, "%s is not allowed under these scopes: %s.", name, telling[name])
	case name == "_has", strings.Contains(p.Name, "."):
		if !interaction.IsType(r.resourceType) {
			return effects{}, false, message.Invalid(message.ErrSearch, "A search with a chain or _has is about one type here: name it in the path, or as the only one by _type.")
		}
		as, err = r.chained(ctx, p)
		return as, true, err
	}
	for _, t := range r.types {
		if err := checkPlain(r.x.Parameters, t, name, modifier, p.Value); err != nil {
			return effects{}, false, err
		}
	}
	return as, true, nil
}

// sort reads _sort, and refuses an order by anything but the resource's own elements. The order is empty if one branch
// is sorted by the FHIR server.
func (r searchRules) sort(value string) (by order, err error) {
	if r.trust == open && len(r.branches) == 1 {
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

// checkSort refuses to sort by a reference, since the order may be that of the resources to which they are, and, where
// several searches are joined, by what cannot be evaluated here.
func (r searchRules) checkSort(name string) error {
	for _, b := range r.branches {
		p, ok := r.x.Parameters.Lookup(b.resourceType, name)
		switch {
		case !ok && telling[name] == "" && !strings.Contains(name, "."):
			return unknown(b.resourceType, name)
		case !isPlainKey(r.x.Parameters, b.resourceType, name):
			return message.Forbidden(message.ErrOracle, "_sort by %s is not allowed under these scopes: it may look at other resources.", strconv.Quote(name))
		case len(r.branches) > 1 && !p.CanSort():
			return message.Forbidden(message.ErrCostly, "_sort by %s is not possible under these scopes, since several searches are joined.", strconv.Quote(name))
		}
	}
	return nil
}

// telling are the parameters that tell of other resources, with the reason.
var telling = map[string]string{
	"_filter":        "it can ask about any resource",
	"_list":          "it tells what a List holds",
	"_query":         "only the FHIR server knows what it asks",
	"_graph":         "only the FHIR server knows what it brings along",
	"_text":          "the order of what it finds tells how common words are in all records",
	"_content":       "the order of what it finds tells how common words are in all records",
	"_score":         "it tells how common words are in all records",
	"_contained":     "a resource inside another one cannot be judged by itself",
	"_containedType": "a resource inside another one cannot be judged by itself",
}

// modifiers are those that compare what is in the resource itself, by kinds of parameters; all kinds have :missing.
var modifiers = map[searchparam.Kind][]string{
	searchparam.String:    {"exact", "contains", "nickname"},
	searchparam.Token:     {"not", "text", "of-type", "above", "below", "in", "not-in"},
	searchparam.URI:       {"above", "below"},
	searchparam.Reference: {"identifier"},
}

// checkPlain refuses what compares more than what is in a resource of the type itself. The modifiers that ask a
// terminology do so of value sets, which are about no patient; but named by an id one could be any resource.
func checkPlain(known searchparam.Set, resourceType, name, modifier, value string) error {
	parameter, ok := known.Lookup(resourceType, name)
	switch {
	case !ok:
		return unknown(resourceType, name)
	case name == "_id" && modifier != "":
		// HAPI's server finds nothing by _id:not where no resource has the id, and else all: it tells which ids are taken.
		return message.Forbidden(message.ErrOracle, "_id takes no modifier under these scopes: it would tell which ids there are.")
	case modifier == "", modifier == "missing":
		return nil
	case parameter.Kind == searchparam.Reference && interaction.IsType(modifier):
		return nil
	case !slices.Contains(modifiers[parameter.Kind], modifier):
		return message.Forbidden(message.ErrOracle, "The modifier :%s of %s is not allowed under these scopes: it may look at other resources.", modifier, name)
	case (modifier == "in" || modifier == "not-in") && !strings.Contains(value, ":"):
		return message.Forbidden(message.ErrOracle, "The modifier :%s needs the URL of a value set under these scopes.", modifier)
	}
	return nil
}

var errUnknown = fmt.Errorf("%w: unknown parameter", message.ErrSearch)

// unknown refuses a parameter of which only the FHIR server may know what it asks.
func unknown(resourceType, name string) error {
	return message.Invalid(errUnknown, "The search parameter %s is not known here: it is none of FHIR R4's for %s, and this site defines none of that name.",
		strconv.Quote(name), cmp.Or(resourceType, "all types"))
}

// isPlainKey reports whether a key of _sort is about what is in a resource itself.
func isPlainKey(known searchparam.Set, resourceType, name string) bool {
	p, ok := known.Lookup(resourceType, name)
	return ok && p.Kind != searchparam.Reference && telling[name] == ""
}

// isPlainOrder reports whether all keys of _sort are about what is in a resource itself.
func isPlainOrder(known searchparam.Set, resourceType, value string) bool {
	for key := range strings.SplitSeq(value, ",") {
		if !isPlainKey(known, resourceType, strings.TrimPrefix(key, "-")) {
			return false
		}
	}
	return true
}

// IsPlain reports whether a search is by the elements of its own type alone.
func (x *Searches) IsPlain(i interaction.Interaction) bool {
	return i.Type != smart.AnyType && !slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool {
		name, modifier, _ := strings.Cut(p.Name, ":")
		switch {
		case isHarmless[p.Name]:
			return false
		case p.Name == "_sort":
			return !isPlainOrder(x.Parameters, i.Type, p.Value)
		}
		return telling[name] != "" || checkPlain(x.Parameters, i.Type, name, modifier, p.Value) != nil
	})
}

// isHarmless are the parameters that say how an answer is to be, and tell of no other type.
var isHarmless = map[string]bool{
	"_count": true, "_summary": true, "_elements": true, "_total": true, "_format": true, "_pretty": true,
}
