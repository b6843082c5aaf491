package judge

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// maxReferrers is the number of DocumentReferences that may name a Binary. With more, the Binary is withheld.
const maxReferrers = 20

// Readable is [Judge.Resource] for the current version of a resource. A Binary that says itself whose it is, by its
// securityContext, is judged by that. Any other Binary is readable if a DocumentReference that the token's scopes cover
// names it as an attachment, and no DocumentReference of anybody else does. HAPI stores Binaries without a securityContext.
//
// The search for DocumentReferences is sent even if the Binary does not exist, so that the number of requests does not reveal
// whether it does.
func (x *Judge) Readable(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Answer) (resource.Resource, error) {
	res, err := x.Resource(ctx, of, grants, a)
	patients := boundTo(grants)
	if of.Type != "Binary" || !message.IsOutside(err) || !x.Granted.Shared.IsSecured(of.Type) || len(patients) == 0 {
		return res, err
	}
	addresses := x.addressesOf(of, a)
	referrers, failure := x.referrers(ctx, addresses)
	if failure != nil {
		return res, failure
	}
	if a.Status != http.StatusOK || res.Type != of.Type || res.ID != of.ID || x.Ruled(ctx, res) == rule.Deny {
		return res, err
	}
	for _, patient := range patients {
		if !x.Granted.MayBeReferred(res, patient) {
			continue
		}
		ok, failure := x.isReferred(ctx, patient, addresses, referrers)
		if ok || failure != nil {
			return res, failure
		}
	}
	return res, err
}

// addressesOf are the URLs by which an attachment may name a resource: relative, and below the addresses by which clients
// and the FHIR server know the API.
func (x *Judge) addressesOf(of interaction.Reference, a *message.Answer) []string {
	all := []string{of.String(), "/" + of.String(), x.At.URL(of.String(), "")}
	own := message.WithoutVersion(a.Header.Get("Content-Location"))
	if strings.HasSuffix(own, "/"+of.String()) {
		all = append(all, own)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(address string) bool { return strings.ContainsAny(address, `,|$\`) })
}

// referrers are the DocumentReferences that the FHIR server finds by a location, of all patients.
func (x *Judge) referrers(ctx context.Context, addresses []string) (*message.Bundle, error) {
	c := message.Get("DocumentReference", smart.EncodeParameters([]smart.Parameter{
		{Name: "location", Value: strings.Join(addresses, ",")}, {Name: "_count", Value: strconv.Itoa(maxReferrers)},
	}))
	c.Header = http.Header{"Cache-Control": {"no-cache"}} // HAPI repeats the results of a search for a minute
	a, err := x.Server.Ask(ctx, c)
	if err != nil {
		return nil, err
	}
	if a.Status/100 == 4 && a.Status != http.StatusTooManyRequests {
		return &message.Bundle{}, nil // the server has no such search
	}
	return x.At.BundleOf(a, true, nil, message.Call{}.Said)
}

// isReferred reports whether a DocumentReference of a patient that a scope covers names one of the addresses, and no
// DocumentReference of anybody else does.
func (x *Judge) isReferred(ctx context.Context, patient string, addresses []string, referrers *message.Bundle) (bool, error) {
	if referrers.Links.To("next") != "" || len(referrers.Entries) > maxReferrers {
		return false, nil
	}
	grants := slices.DeleteFunc(x.Granted.For("DocumentReference", smart.Read), func(g access.Grant) bool { return !g.IsFor(patient) })
	found := false
	for _, e := range referrers.Entries {
		if e.Parsed.Type != "DocumentReference" || !slices.ContainsFunc(access.Attachments(e.Parsed), func(url string) bool { return slices.Contains(addresses, url) }) {
			continue
		}
		if !access.NamesOnly(e.Parsed, patient) {
			return false, nil
		}
		if found {
			continue
		}
		var err error
		if found, err = x.Covered(ctx, e.Parsed, grants); err != nil {
			return false, err
		}
	}
	return found, nil
}

// LooksAtData reports whether policies may look at the data of a Binary.
func (x *Judge) LooksAtData() bool { return x.judgement.looksAt("data") }

// BinaryCall is the call for as much of a Binary as it takes to judge it: without its data, which may be long, unless
// policies look at that.
func (x *Judge) BinaryCall(path string) message.Call {
	if x.LooksAtData() {
		return message.Get(path, "")
	}
	return message.BinaryMetadata(path)
}

// MayAttach reports whether a resource that a client writes into a patient's record may name a Binary as an attachment:
// the client may read that Binary, or the transaction writes it. Else the attachment would open it, see [Judge.Readable].
func (x *Judge) MayAttach(ctx context.Context, patient string, of interaction.Reference) (bool, error) {
	if s, found := x.promised[standingKey{of, patient}]; found && s.Permissions != 0 {
		return true, nil
	}
	if _, err := interaction.Parse(http.MethodGet, of.String(), "", nil); err != nil {
		return false, nil
	}
	grants := slices.DeleteFunc(slices.Clone(x.Granted.Grants), func(g access.Grant) bool {
		return !g.IsFor(patient) || g.Type != smart.AnyType && g.Type != of.Type
	})
	a, err := x.Server.Ask(ctx, x.BinaryCall(of.String()))
	if err != nil {
		return false, err
	}
	if _, err = x.judged(ctx, of, grants, a, (*access.Rights).CoversStored); err == nil || !message.IsOutside(err) {
		return err == nil, err
	}
	_, err = x.Readable(ctx, of, slices.DeleteFunc(x.Granted.For(of.Type, smart.Read), func(g access.Grant) bool { return !g.IsFor(patient) }), a)
	if message.IsOutside(err) {
		return false, nil
	}
	return err == nil, err
}
