package e2e

import (
	"flag"
	"net/http/cookiejar"
	"slices"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// hangingRounds is the number of rounds. Each round measures sign-ins by password twice: while no provider is in use, and while
// other people wait for a hung provider. Three rounds show whether a sign-in waits for the provider; 11 yield a precise ratio.
var hangingRounds = flag.Int("hanging.rounds", 3, "rounds of TestHangingProviderDelaysNoOther")

const (
	signIns = 200
	warmUp  = 30 // number of sign-ins that are not measured, during which connections are opened and closed
	waiters = 32 // number of people who wait: half for the token endpoint, half for discovery
)

// delayBound returns the highest accepted ratio. A sign-in that waits for the provider takes a minute instead of milliseconds.
// Without such a wait, a few rounds on a busy machine vary by less than a factor of 3. The goal is 1.1. The log contains the
// measured ratio.
func delayBound() float64 {
	if *hangingRounds >= 11 {
		return 1.5
	}
	return 3
}

// longer is a provider timeout that exceeds the duration of a round on a busy machine, so people wait during the entire round.
const longer = "timeout 1m"

// The hash of the example's password, and a hash with a low cost that does not distort the measurement.
const (
	exampleHash = "$2a$10$ItlMyMTaHOapU0jOlqAKDeKxwtj3jMQrwFNvdsOH7fXf5Z8O4Sjjy"
	cheapHash   = "$2a$04$bLS5Y6v7wz3x9kVvFq6Sh.dt0jQKU0Qpu0kBTxL7oYiVlPWFOkO72"
)

// A hung provider does not delay people who do not use it. The test alternates sign-ins by password with and without people who
// wait for the provider, and compares the 99th percentiles. The result is the median ratio of the rounds.
func TestHangingProviderDelaysNoOther(t *testing.T) {
	token, discovery := providertest.Start(t), providertest.Start(t)
	token.SetFault(providertest.Token, providertest.NeverRespond)
	discovery.SetFault(providertest.Discovery, providertest.NeverRespond)
	g := federatedGateway(t, "gateway-hanging", mustFreeAddress(t), []string{
		idpBlock("token", token.Issuer, providertest.ClientID, providertest.ClientSecret, longer),
		idpBlock("discovery", discovery.Issuer, providertest.ClientID, providertest.ClientSecret, longer),
	}, exampleHash, cheapHash)

	var without, with, p50Without, p50With []time.Duration
	alone := func() {
		lengths := g.measureSignIns(t)
		without, p50Without = append(without, percentile(lengths, 99)), append(p50Without, percentile(lengths, 50))
	}
	together := func() {
		hanging := startWaiters(t, g, token)
		lengths := g.measureSignIns(t)
		if n := hanging.stop(); n < waiters/2 {
			t.Errorf("only %d of %d people waited all the time", n, waiters)
		}
		with, p50With = append(with, percentile(lengths, 99)), append(p50With, percentile(lengths, 50))
	}
	for round := range *hangingRounds {
		if round%2 == 0 {
			alone()
			together()
		} else {
			together()
			alone()
		}
	}
	ratio := float64(median(with)) / float64(median(without))
	t.Logf("sign-in by password, %d rounds of %d: p50 %v alone, %v with %d people at a hanging provider", *hangingRounds, signIns,
		median(p50Without), median(p50With), waiters)
	t.Logf("p99 %v alone, %v with them: ratio %.2f", median(without), median(with), ratio)
	if ratio > delayBound() {
		t.Errorf("the ratio is %.2f, want at most %.1f", ratio, delayBound())
	}
}

// measureSignIns returns the durations of sequential sign-ins, from the authorization request to the code.
func (g *gateway) measureSignIns(t *testing.T) []time.Duration {
	t.Helper()
	address := g.demoApp(t, "openid").AuthCodeURL("state")
	person := g.newPerson(t)
	lengths := make([]time.Duration, warmUp+signIns)
	for i := range lengths {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		person.client.Jar = jar // a browser without cookies
		began := time.Now()
		if end := person.signIn(t, address); !end.Query().Has("code") {
			t.Fatalf("sent to %s, want a code", end)
		}
		lengths[i] = time.Since(began)
	}
	return lengths[warmUp:]
}

// percentile returns the smallest duration that is not exceeded by p percent of the durations.
func percentile(lengths []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(lengths))
	return sorted[(len(sorted)*p+99)/100-1]
}

func median(lengths []time.Duration) time.Duration {
	return percentile(lengths, 50).Round(time.Microsecond)
}
