// Package gateway implements the directive fhir_gateway, which puts all handlers of caddy-fhir in front of a FHIR server in a
// safe order. It expands to other directives and is not a handler.
package gateway

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

func init() {
	httpcaddyfile.RegisterDirective("fhir_gateway", parse)
	// The directive must come last, because it handles every request.
	httpcaddyfile.RegisterDirectiveOrder("fhir_gateway", httpcaddyfile.After, "acme_server")
}

// directives are the directives that may have a block in fhir_gateway, in the order of their handlers.
var directives = []string{"fhir_bearer", "fhir_expand", "reverse_proxy"}

// parse expands the directive. Syntax:
//
//	fhir_gateway <backend> {
//		fhir_bearer { … }
//		fhir_expand { … }
//		reverse_proxy { … }
//	}
//
// Each block contains the options of that directive. With the FHIR base of the global option fhir, the expansion is:
//
//	fhir_authorize
//	@fhir_gateway path /fhir/R4 /fhir/R4/*
//	handle @fhir_gateway {
//		fhir_bearer
//		fhir_expand
//		reverse_proxy <backend>
//	}
//	handle {
//		respond 404
//	}
//	handle_errors {
//		fhir_outcome
//	}
//
// Without the global option fhir, fhir_authorize is omitted and fhir_bearer requires the option trust.
func parse(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next() // the directive's name
	base, hasApp, err := fhirBase(h)
	if err != nil {
		return nil, err
	}
	name := h.Token()
	if !h.NextArg() {
		return nil, h.Err("fhir_gateway requires the address of the FHIR server, such as hapi:8080" + base)
	}
	backend := h.Token()
	if backend.Text, err = upstreamAddress(backend.Text, base); err != nil {
		return nil, h.WrapErr(err)
	}
	if h.NextArg() {
		return nil, h.ArgErr()
	}
	blocks, err := readBlocks(h)
	if err != nil {
		return nil, err
	}
	routes, err := httpcaddyfile.ParseSegmentAsSubroute(h.WithDispenser(caddyfile.NewDispenser(expandDirectives(name, backend, base, hasApp, blocks))))
	if err != nil {
		return nil, err
	}
	return append(h.NewRoute(nil, routes), httpcaddyfile.ConfigValue{Class: "error_route", Value: &caddyhttp.Subroute{
		Routes: caddyhttp.RouteList{{HandlersRaw: []json.RawMessage{json.RawMessage(`{"handler":"fhir_outcome"}`)}}},
	}}), nil
}

// fhirBase returns the path of the FHIR API and whether the global option fhir is configured.
func fhirBase(h httpcaddyfile.Helper) (base string, hasApp bool, err error) {
	app, hasApp := h.Option("fhir").(httpcaddyfile.App)
	if !hasApp {
		return fhirbase.DefaultBase, false, nil
	}
	config := struct {
		FHIRBase string `json:"fhir_base"`
	}{fhirbase.DefaultBase}
	err = json.Unmarshal(app.Value, &config)
	return config.FHIRBase, true, err
}

// upstreamAddress returns the address of a backend in the format of reverse_proxy, which does not support paths. The path must
// be the FHIR base, because the guard and the FHIR server must use the same path. The address of a Unix socket, such as
// unix//run/fhir.sock, is returned unchanged.
func upstreamAddress(backend, base string) (string, error) {
	if strings.HasPrefix(backend, "unix/") || strings.HasPrefix(backend, "unix+h2c/") {
		return backend, nil
	}
	address := backend
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("backend %q must be host:port or an http or https URL, without a path or with the path %s", backend, base)
	}
	if path := strings.TrimSuffix(u.Path, "/"); path != "" && path != base {
		return "", fmt.Errorf("the backend path %s differs from the FHIR base %s: set fhir_base %[1]s in the global option fhir", path, base)
	}
	if !strings.Contains(backend, "://") {
		return u.Host, nil
	}
	return u.Scheme + "://" + u.Host, nil
}

// readBlocks returns the blocks in fhir_gateway by the name of their directive.
func readBlocks(h httpcaddyfile.Helper) (map[string]caddyfile.Segment, error) {
	blocks := map[string]caddyfile.Segment{}
	for nesting := h.Nesting(); h.NextBlock(nesting); {
		part := h.Val()
		switch {
		case !slices.Contains(directives, part):
			return nil, h.Errf("unrecognized subdirective: %s%s", part, option.DidYouMean(part, directives))
		case blocks[part] != nil:
			return nil, h.Errf("duplicate %s", part)
		}
		blocks[part] = h.NextSegment()
		if len(blocks[part]) > 1 && blocks[part][1].Text != "{" {
			return nil, h.Errf("%s accepts only a block inside fhir_gateway, which defines the matcher and the address", part)
		}
	}
	return blocks, nil
}

// expandDirectives returns the tokens of a block that contains the directives. Their file name includes the line of
// fhir_gateway, for errors. It differs from that of tokens in the Caddyfile, so that the parser never treats both as being on
// the same line.
func expandDirectives(name, backend caddyfile.Token, base string, hasApp bool, blocks map[string]caddyfile.Segment) (tokens []caddyfile.Token) {
	lines := 0
	add := func(text string) {
		parsed, _ := caddyfile.Tokenize([]byte(text), fmt.Sprintf("%s:%d, fhir_gateway", name.File, name.Line)) // an error is only possible for heredocs
		for i := range parsed {
			parsed[i].Line += lines
		}
		tokens, lines = append(tokens, parsed...), lines+strings.Count(text, "\n")
	}
	add("fhir_gateway {\n")
	if hasApp {
		add("fhir_authorize\n")
	}
	add("@fhir_gateway path " + base + " " + base + "/*\nhandle @fhir_gateway {\n")
	for _, part := range directives {
		block := slices.Clone(blocks[part])
		switch {
		case part != "reverse_proxy":
		case block == nil:
			part += " " + backend.Text
		default:
			address := block[0]
			address.Text = backend.Text
			block = slices.Insert(block, 1, address)
		}
		if tokens = append(tokens, block...); block == nil {
			add(part + "\n")
		}
	}
	add("}\nhandle {\nrespond 404\n}\n}\n")
	return tokens
}
