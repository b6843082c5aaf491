package caddymodule

import (
	"os"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }
