package brokertest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	serveIfChild()
	goleak.VerifyTestMain(m)
}

func TestBothEnds(t *testing.T) {
	Exercise(t, func(t testing.TB) Site { return Run(t) }, Open)
}
