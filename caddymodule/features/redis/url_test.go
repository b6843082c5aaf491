package redis

import (
	"errors"
	"reflect"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]redisstore.Options{
		"redis://redis.example":                 {Address: "redis.example:6379"},
		"redis://fhir:p%40ss@redis.example:1/3": {Address: "redis.example:1", Username: "fhir", Password: "p@ss", Database: 3},
		"redis://:pass@[::1]":                   {Address: "[::1]:6379", Password: "pass"},
		"unix://:pass@/run/redis.sock?db=2":     {Address: "/run/redis.sock", Password: "pass", Database: 2},
		"redis://a:1?cluster=true&addr=b:2":     {Cluster: []string{"a:1", "b:2"}},
		"redis://u:p@a/2?master_name=m&addr=b&addr=c:3&sentinel_username=w&sentinel_password=x%20y": {
			Username: "u", Password: "p", Database: 2,
			Sentinel: redisstore.Sentinel{Master: "m", Nodes: []string{"a:6379", "b:6379", "c:3"}, Username: "w", Password: "x y"},
		},
	} {
		if got, err := parseURL(url); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
	}
	if got, err := parseURL("rediss://a"); err != nil || got.TLS == nil {
		t.Errorf("rediss: %+v, %v", got, err)
	}
}

func TestParseURLRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]error{
		"redis.example:6379": errURL, "http://a": errURL, "redis://": errURL, "redis://a:0": errURL, "redis://a:99999": errURL, "redis://a/x": errURL,
		"redis://a/0#x": errURL, "redis://a/-1": errURL, "unix://a/socket": errURL, "unix://": errURL,
		"redis://a?pool_size=3": errURLParameter, "redis://a?db=1": errURLParameter, "redis://a?cluster=yes": errURLParameter,
		"redis://a?cluster=true&addr=:1": errURLParameter, "redis://a?master_name=": errURLParameter, "redis://a?master_name=m&master_name=n": errURLParameter,
		"redis://a?master_name=m&cluster=true": errURLModes, "redis://a?addr=b:1": errURLModes, "redis://a?sentinel_password=x": errURLModes,
		"unix:///socket?cluster=true": errURLModes, "redis://a/1?cluster=true": errURLDatabase,
	} {
		if got, err := parseURL(url); !errors.Is(err, want) {
			t.Errorf("%s: %+v, %v, want %v", url, got, err, want)
		}
	}
}
