"""A job that composes regimes: what was planned is what is measured, and it learns."""

from local_service import ServiceTestCase, main


class Regimes(ServiceTestCase):
    def setUp(self):
        super().setUp()
        self.prepare_data()

    def test_backward_masking_streamed_and_checkpointed_learns_and_sends_what_the_plan_says(self):
        file = self.job_file(
            data={"sequence_length": 64}, workers={"count": 3, "batch": 2},
            subnetwork={"coverage": 0.67, "masking": "backward", "absent_weights": "streamed"},
            activation_checkpointing="always", gradient_precision="bf16", schedule={"steps": 40, "decay": "step"},
            evaluation={"tokens": 2048})
        self.tessera("train", file, "--no-sample")
        status = self.status()
        self.assertEqual(status["state"].lower(), "succeeded")
        self.assertLess(float(status["validationLoss"]), 3.0)  # 5.5 untrained; a plain run gets to 2.3
        for worker in status["workers"]:
            self.assertAlmostEqual(
                int(worker["trafficBytesPerStep"]) / int(worker["trafficPredictedBytesPerStep"]), 1, delta=0.02)


if __name__ == "__main__":
    main()
