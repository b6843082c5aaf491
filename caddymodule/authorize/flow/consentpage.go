package flow

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func (ps *signedInPages) showConsent(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	asked := *req
	ask, err := ps.authorizer.needsConsent(r.Context(), &asked, signedIn.User)
	var earlier *consent.Approval
	if ask && err == nil {
		earlier, err = ps.earlier(r, req, signedIn)
	}
	if err != nil {
		ps.responses.redirectError(w, r, req, err)
		return
	}
	data := page.Consent{
		Request: p.Get("request"), Client: req.client.Title(), Person: page.Person(signedIn.User.Label()),
		Unknown: req.client.Registered, Links: appLinks(req.client), Patient: ps.openedFor(r.Context(), req, signedIn.User),
	}
	if to, err := url.Parse(req.redirectURI); err == nil {
		data.To = cmp.Or(to.Host, to.Scheme)
	}
	if !ask { // but to continue
		ps.pages.show(w, r, req, page.View{Template: "continue", Data: data, Policy: page.Policy{Images: data.Links.Images()}})
		return
	}
	for _, item := range req.items() {
		if isFixed(item) {
			data.Fixed = append(data.Fixed, Describe(item, signedIn.User))
		}
	}
	data.Groups = ps.consentGroups(req, signedIn.User, earlier, data.Patient)
	ps.pages.show(w, r, req, page.View{Template: "consent", Script: consentScript(data.Groups), Data: data, Policy: page.Policy{Images: data.Links.Images()}})
}

// openedFor is whom the page names as the patient. If the FHIR server does not say more, it is
// at least the id.
func (ps *signedInPages) openedFor(ctx context.Context, req *authorizationRequest, user *people.User) page.ConsentPatient {
	about := req.aboutPatient(user)
	if about.Own || about.Patient == "" {
		return page.ConsentPatient{}
	}
	shown := page.ConsentPatient{ID: about.Patient}
	if about.Patient == req.launch.picked.patient {
		shown.Name = req.launch.picked.name
	}
	found, err := ps.patients.Named(ctx, user.Person(), about.Patient)
	if err != nil {
		ps.logger.WarnContext(ctx, "the consent page does not say the patient's name and birthday", "error", err)
		return shown
	}
	shown.Name, shown.BirthDate = found.Name, found.BirthDate
	return shown
}

// consentScript is for pages with much to untick.
func consentScript(groups []page.ConsentGroup) string {
	hasParts := func(item page.ConsentItem) bool { return len(item.Parts) > 0 }
	if slices.ContainsFunc(groups, func(g page.ConsentGroup) bool { return slices.ContainsFunc(g.Items, hasParts) }) {
		return "consent"
	}
	return ""
}

// earlier is what the person answered before, if that still counts; or nil.
func (ps *signedInPages) earlier(r *http.Request, req *authorizationRequest, signedIn *session.SignedIn) (*consent.Approval, error) {
	if req.client.Consent == client.ConsentSkip {
		return nil, nil
	}
	all, err := ps.consents.Load(r.Context(), signedIn.User.ID, req.client.ID)
	return all.About(req.aboutPatient(signedIn.User)), err
}

// consentGroup tells the groups of the consent page apart, in their order there.
type consentGroup int

const (
	patientRecords consentGroup = iota
	userRecords
	profile
	otherItems
	lastingAccess
	consentGroupCount
)

func groupOf(item string) consentGroup {
	scope, isResource := smart.ParseResourceScope(item)
	switch {
	case isResource && scope.Level == "patient":
		return patientRecords
	case isResource:
		return userRecords
	case item == client.OfflineAccess, item == client.OnlineAccess:
		return lastingAccess
	case strings.HasPrefix(item, claimItem), len(people.ClaimsOfScope([]string{item})) > 0:
		return profile
	}
	return otherItems
}

// consentGroups are what can be unticked: records apart from what is known of the person.
func (ps *signedInPages) consentGroups(req *authorizationRequest, user *people.User, earlier *consent.Approval, patient page.ConsentPatient) (shown []page.ConsentGroup) {
	var groups [consentGroupCount][]page.ConsentItem
	for _, item := range req.items() {
		if !isFixed(item) {
			g := groupOf(item)
			groups[g] = append(groups[g], ps.consentItem(item, user, earlier))
		}
	}
	legends := [consentGroupCount]*page.Text{
		whoseRecords(patient), page.T("Health records of everybody you have access to"), page.T("About you"),
		page.T("Other permissions"), page.T("How long"),
	}
	for g, items := range groups {
		if len(items) > 0 {
			shown = append(shown, page.ConsentGroup{Legend: legends[g], Items: items})
		}
	}
	return shown
}

// whoseRecords says whose records scopes for a patient are about.
func whoseRecords(p page.ConsentPatient) *page.Text {
	switch {
	case p.Name != "":
		return page.T("Health records of %s", p.Name)
	case p.ID != "":
		return page.T("Health records of the patient with the id %s", p.ID)
	}
	return page.T("Your health records")
}

// consentItem is an item's checkbox, with those by which less can be given.
func (ps *signedInPages) consentItem(item string, user *people.User, earlier *consent.Approval) page.ConsentItem {
	choice := consent.ChoiceOf(item)
	names, asked := earlier.Ticked(&choice)
	box := consentBox{ticked: func(name string) bool { return !asked || names[name] }}
	shown := box.show(&choice, Describe(item, user))
	if scope, ok := smart.ParseResourceScope(item); ok {
		shown.Text, shown.Detail = dataOf(scope), verbs(scope.Permission)
	}
	if read, write, both := choice.Permissions(); both {
		scope, _ := smart.ParseResourceScope(item)
		shown.Permissions = []page.ConsentItem{
			{Name: itemField + read, Text: verbs(scope.Permission & consent.Reading), Ticked: box.ticked(read)},
			{Name: itemField + write, Text: verbs(scope.Permission & consent.Writing), Ticked: box.ticked(write)},
		}
	}
	shown.Limited = asked && shown.Ticked && box.untickedPart(&choice)
	if item == client.OfflineAccess {
		shown.Times = ps.lasting.onPage()
	}
	return shown
}

// consentBox shows choices, ticked as they are to be offered.
type consentBox struct {
	ticked func(name string) bool
}

func (b consentBox) show(choice *consent.Choice, text *page.Text) page.ConsentItem {
	item := page.ConsentItem{Name: itemField + choice.Name, Text: text, Ticked: b.ticked(choice.Name)}
	for i := range choice.Parts {
		part := &choice.Parts[i]
		item.Parts = append(item.Parts, b.show(part, partWords[part.Kind()]))
	}
	return item
}

// untickedPart reports whether less than all of an item is ticked.
func (b consentBox) untickedPart(choice *consent.Choice) bool {
	read, write, both := choice.Permissions()
	if both && !(b.ticked(read) && b.ticked(write)) {
		return true
	}
	for i := range choice.Parts {
		if part := &choice.Parts[i]; !b.ticked(part.Name) || b.untickedPart(part) {
			return true
		}
	}
	return false
}
