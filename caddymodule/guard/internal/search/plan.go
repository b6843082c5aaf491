package search

import (
	"cmp"
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
